#include "train/job_agreement.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/random.h"
#include "base/version.h"
#include "comm/texts.h"
#include "train/job_record.h"

namespace millrace::train {
namespace {

std::string fingerprint(const void* data, size_t bytes) {
  return fmt::format("{:016x}", hash_bytes(data, bytes));
}

// Of the program that runs: the same file gives the same word on every host.
std::string build_fingerprint() {
  try {
    const MappedFile program("/proc/self/exe");
    return fingerprint(program.bytes().data(), program.size());
  } catch (const InputError&) {
    return "unknown";
  }
}

using Fields = std::vector<std::pair<std::string, std::string>>;  // name and value as text

// Objects inside objects are named "outer.inner".
void add_fields(Fields& fields, const std::string& prefix, const Json& json) {
  for (const auto& [name, value] : json.items()) {
    if (value.is_object()) {
      add_fields(fields, prefix + name + ".", value);
    } else {
      fields.emplace_back(prefix + name, value.dump());
    }
  }
}

std::string value_of(const Fields& fields, const std::string& name) {
  for (const auto& [field, value] : fields) {
    if (field == name) return value;
  }
  return "missing";
}

[[noreturn]] void refuse(const comm::Group& ranks, const std::vector<Fields>& all,
                         const std::string& name, const std::string& first,
                         const std::string& other) {
  std::vector<std::string> holders;
  for (size_t i = 0; i < all.size(); ++i) {
    if (value_of(all[i], name) == other) holders.push_back(ranks.name(static_cast<int>(i)));
  }
  fail_input(
      "The ranks were not started for the same job: {} is {} on {} but {} on {}; use the same "
      "program, flags and data everywhere.",
      name, first, ranks.name(0), other, fmt::join(holders, ", "));
}

}  // namespace

Json describe_agreement(const TrainJob& job, const graph::Graph& network, int64_t samples) {
  Json json;
  json["version"] = kVersion;
  json["build"] = build_fingerprint();
  json.update(describe_job(job).at("fixed"));
  json.erase("class_names");
  const std::string names = Json(job.class_names).dump();
  json["names of the classes"] = fingerprint(names.data(), names.size());
  const std::string graph = graph::to_text(network);
  json["graph"] = fingerprint(graph.data(), graph.size());
  json["steps"] = job.steps;
  json["epochs"] = job.epochs;
  json["samples in the data set"] = samples;
  Json settings = describe_job(job);
  settings.erase("fixed");
  settings.erase("data");
  settings.erase("eval-data");
  settings.erase("eval-verification");
  json.update(settings);
  json["learning-rate"] = to_json(job.learning_rate);
  json["plan"] = parallel::to_json(job.plan);
  json["checkpoint"] = !job.checkpoint.empty();
  json["checkpoint-every"] = {job.checkpoint_every.steps, job.checkpoint_every.epochs};
  json["resume"] = job.resume;
  json["eval-data"] = !job.evaluation_data.empty();
  json["eval-verification"] = job.verification.size();
  json["eval-every"] = {job.evaluation_every.steps, job.evaluation_every.epochs};
  json["load-weights"] = !job.load_weights.empty();
  json["new-layers"] = {job.new_layers.automatic, job.new_layers.patterns};
  return json;
}

void require_agreement(comm::Group& ranks, const Json& own) {
  std::vector<Fields> all;
  for (const std::string& text : comm::gather_texts(ranks, own.dump())) {
    add_fields(all.emplace_back(), "", Json::parse(text));
  }
  for (const Fields& fields : all) {
    for (const auto& [name, value] : fields) {
      const std::string first = value_of(all[0], name);
      for (const Fields& theirs : all) {
        const std::string other = value_of(theirs, name);
        if (other != first) refuse(ranks, all, name, first, other);
      }
    }
  }
}

}  // namespace millrace::train
