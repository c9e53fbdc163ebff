#include "cli/cluster_report.h"

#include <fmt/format.h>

#include <cmath>
#include <set>

#include "base/file.h"
#include "base/text.h"
#include "cli/flag_names.h"
#include "passes/settings.h"
#include "planner/published/fit.h"
#include "planner/published/interval.h"
#include "planner/search/explain.h"
#include "planner/search/stale_accuracy.h"
#include "runtime/trace_file.h"

namespace millrace::cli {
namespace {

constexpr size_t kShown = 24;  // plans of a list that are printed

uint64_t whole(double bytes) { return static_cast<uint64_t>(std::llround(bytes)); }

std::string size_text(const Json& bytes) { return format_bytes(bytes.get<uint64_t>()); }

Json describe_memory(const planner::StageMemory& memory) {
  return {{"weights", whole(memory.weights)},     {"gradients", whole(memory.gradients)},
          {"optimizer", whole(memory.optimizer)}, {"activations", whole(memory.activations)},
          {"workspace", whole(memory.workspace)}, {"communication", whole(memory.communication)},
          {"context", whole(memory.context)}};
}

std::string epoch_text(double seconds) {
  return seconds < 100 ? fmt::format("{:.3g} s", seconds) : fmt::format("{:.0f} s", seconds);
}

// "0:0-7,1:0-7, ... 4095:0-7" of many machines.
std::string shortened(const std::string& devices) {
  constexpr size_t kWhole = 100;
  if (devices.size() <= kWhole) return devices;
  const size_t second = devices.find(',', devices.find(',') + 1);
  if (second == std::string::npos) return devices;
  return fmt::format("{}, ... {}", devices.substr(0, second),
                     devices.substr(devices.rfind(',') + 1));
}

std::string error_sentence(const Json& estimate) {
  if (estimate.contains("from")) return estimate["from"].get<std::string>();
  if (!estimate["fitted"].get<bool>()) {
    return "The costs of this system are guesses that no measurement has confirmed yet.";
  }
  return fmt::format(
      "Published rows that the costs were not fitted to{} come out within {:.0f} % in the middle "
      "and {:.0f} % at worst.",
      estimate["alike"].get<bool>() ? "" : ", of kinds as new to them as this job,",
      estimate["median"].get<double>() * 100, estimate["worst"].get<double>() * 100);
}

}  // namespace

std::string source_of(const planner::PlanInputs& inputs) {
  return planner::is_fitted(inputs.software.name) ? "published" : "formula";
}

Json describe_flags(const planner::PlannedJob& job) {
  // `train` counts samples per device, also where replicas take whole mini-batches.
  const double batch = job.round_robin ? job.batch / job.devices() : job.batch;
  Json flags = {{"--batch", batch}, {"--precision", passes::precision_name(job.precision)}};
  if (job.wire) flags["--comm-dtype"] = passes::precision_name(*job.wire);
  flags["--recompute"] = job.recompute ? "all" : "none";
  constexpr const char* kHeads[] = {"none", "dp", "mp", "pfc"};
  if (job.head.parallel != planner::PlannedHead::Parallel::none) {
    flags["--head-parallel"] = kHeads[static_cast<size_t>(job.head.parallel)];
    flags["--classes"] = job.head.classes;
  }
  if (job.head.parallel == planner::PlannedHead::Parallel::sampled) {
    flags["--sample-rate"] = job.head.sample_rate;
  }
  return flags;
}

void add_exactness(Json& described, const planner::PlannedJob& job) {
  described["exact"] = job.is_exact();
  const std::string cost =
      planner::stale_sentence(job.schedule, static_cast<int>(job.stages.size()));
  if (!cost.empty()) described["accuracy"] = cost;
}

void add_price(Json& described, const PriceQuestion& question) {
  if (question.per_device_hour <= 0) return;
  std::set<std::string> devices;
  for (const Json& device : described["devices"]) devices.insert(device["id"].get<std::string>());
  const double per_second = question.per_device_hour / 3600 * static_cast<double>(devices.size());
  const double epoch = described["predicted_epoch_seconds"].get<double>() * per_second;
  Json price = {{"per_device_hour", question.per_device_hour},
                {"devices", devices.size()},
                {"epoch_cost", epoch}};
  if (question.epochs > 0) {
    price["run_cost"] = epoch * static_cast<double>(question.epochs);
  } else if (question.steps > 0) {
    price["run_cost"] = described["predicted_seconds_per_step"].get<double>() *
                        static_cast<double>(question.steps) * per_second;
  }
  described["price"] = std::move(price);
}

std::string format_price(const Json& described) {
  if (!described.contains("price")) return {};
  const Json& price = described["price"];
  std::string text = fmt::format(
      "{} devices at {:g} EUR an hour: {:.2f} EUR for 1281167 images", price["devices"].get<int>(),
      price["per_device_hour"].get<double>(), price["epoch_cost"].get<double>());
  if (price.contains("run_cost")) {
    text += fmt::format(", {:.2f} EUR for the run", price["run_cost"].get<double>());
  }
  return text + ".\n";
}

Json describe_stages(const planner::PlannedJob& job, const planner::NetworkWork& network,
                     int devices_per_machine) {
  Json stages = Json::array();
  for (size_t i = 0; i < job.stages.size(); ++i) {
    const planner::PlannedStage& stage = job.stages[i];
    const std::string devices = planner::format_stages({stage}, devices_per_machine);
    stages.push_back({{"stage", i},
                      {"devices", devices},
                      {"first", network.layers.at(stage.begin).name},
                      {"last", network.layers.at(stage.end - 1).name},
                      {"operators", stage.end - stage.begin}});
  }
  return stages;
}

namespace {

Json describe_plan(const planner::PlannedJob& job, const planner::PlanInputs& inputs) {
  return parallel::to_json(planner::plan_file_of(
      planner::plan_of(inputs.network, job, inputs.cluster.devices_per_machine), job,
      inputs.network.model, inputs.cluster.name));
}

}  // namespace

Json describe_prediction(const planner::PlannedJob& job, const planner::Prediction& prediction,
                         const planner::PlanInputs& inputs) {
  Json json = {{"model", inputs.network.model},
               {"cluster", inputs.cluster.name},
               {"system", inputs.software.name},
               {"global_batch", job.samples_per_step()},
               {"precision", passes::precision_name(job.precision)}};
  json["devices"] = Json::array();
  for (size_t i = 0; i < job.stages.size(); ++i) {
    for (const int device : job.stages[i].devices) {
      const int count = inputs.cluster.devices_per_machine;
      json["devices"].push_back({{"id", fmt::format("{}:{}", device / count, device % count)},
                                 {"stage", i},
                                 {"peak_bytes", whole(prediction.device_memory[i])},
                                 {"breakdown", describe_memory(prediction.memory[i])}});
    }
  }
  json["source"] = source_of(inputs);
  json["predicted_seconds_per_step"] = prediction.seconds_per_step;
  json["predicted_samples_per_second"] = prediction.samples_per_second;
  json["predicted_epoch_seconds"] = prediction.epoch_seconds;
  json["bubble"] = prediction.bubble;
  json["limited_by"] = prediction.limited_by;
  const std::vector<planner::HeldOutError> held_out = planner::kept_held_out_errors();
  const planner::TimeInterval interval = planner::interval_for(
      {inputs.software.name, inputs.cluster.device.name, inputs.network.model}, held_out);
  const planner::FitQuality errors = planner::errors_like(interval, held_out);
  json["error_estimate"] = {{"median", errors.median},
                            {"worst", errors.worst},
                            {"alike", interval.unlike.empty()},
                            {"fitted", planner::is_fitted(inputs.software.name)}};
  json["interval"] =
      planner::describe(interval, prediction.seconds_per_step, prediction.samples_per_second);
  json["interval"]["text"] = planner::interval_sentence(interval, prediction.samples_per_second);
  add_exactness(json, job);
  json["fits"] = prediction.fits;
  if (std::isfinite(inputs.cluster.device.memory_bytes)) {
    json["device_memory_bytes"] = whole(inputs.cluster.device.memory_bytes);
  }
  json["host_needs_bytes"] = whole(prediction.host_memory);
  if (inputs.cluster.host_memory_bytes > 0) {
    json["host_memory_bytes"] = whole(inputs.cluster.host_memory_bytes);
  }
  if (!prediction.fits) json["reason"] = prediction.reason;
  if (job.real_data && inputs.cluster.host_cores == 0) {
    json["note"] = fmt::format(
        "Cluster '{}' does not say 'host_cores': how fast images are read and decoded is left out.",
        inputs.cluster.name);
  }
  json["stages"] = describe_stages(job, inputs.network, inputs.cluster.devices_per_machine);
  json["flags"] = describe_flags(job);
  json["plan"] = describe_plan(job, inputs);
  return json;
}

Json describe_search(const planner::SearchOutcome& outcome, const planner::PlanInputs& inputs) {
  const auto describe_one = [&](const planner::SearchResult& result) -> Json {
    const char* origin = result.pipedream ? ", divided as PipeDream would" : "";
    return {{"shape", planner::describe_shape(result.job) + origin},
            {"fits", result.fits},
            {"exact", result.job.is_exact()},
            {"predicted_seconds_per_step", result.seconds_per_step},
            {"predicted_samples_per_second", result.samples_per_second},
            {"predicted_epoch_seconds", planner::kImagesOfEpoch / result.samples_per_second},
            {"peak_bytes", whole(result.memory)},
            {"verdict", result.verdict},
            {"flags", describe_flags(result.job)},
            {"plan", describe_plan(result.job, inputs)}};
  };
  const auto describe_all = [&](const std::vector<planner::SearchResult>& results) {
    Json list = Json::array();
    for (const planner::SearchResult& result : results) list.push_back(describe_one(result));
    return list;
  };
  Json json = {{"tried", outcome.tried}, {"fits", !outcome.plans.empty()}};
  json["best"] = describe_all(outcome.plans);
  json["others"] = describe_all(outcome.others);
  json["pipedream"] = outcome.pipedream ? describe_one(*outcome.pipedream) : Json();
  return json;
}

std::string format_search(const Json& described) {
  std::string text = fmt::format("{} plans compared.\n", described["tried"].get<size_t>());
  if (!described["fits"].get<bool>()) text += "None of them fits.\n";
  for (const char* list : {"best", "others"}) {
    if (described[list].empty()) continue;
    text += list == std::string_view("best") ? "\nThe best:\n" : "\nWhy others lost:\n";
    size_t shown = 0;
    for (const Json& result : described[list]) {
      if (++shown > kShown) {
        text += fmt::format("  and {} kinds more, see --json\n", described[list].size() - kShown);
        break;
      }
      text += fmt::format("  {:>9.1f} samples/s  {:>10}  {}\n{:24}{}\n",
                          result["predicted_samples_per_second"].get<double>(),
                          size_text(result["peak_bytes"]), result["shape"].get<std::string>(), "",
                          result["verdict"].get<std::string>());
    }
  }
  if (described.contains("pipedream") && !described["pipedream"].is_null()) {
    const Json& pipedream = described["pipedream"];
    text +=
        fmt::format("\nPipeDream's own plan: {:.1f} samples/s, {}; {}\n",
                    pipedream["predicted_samples_per_second"].get<double>(),
                    pipedream["shape"].get<std::string>(), pipedream["verdict"].get<std::string>());
  }
  return text;
}

std::string format_stage_lines(const Json& described) {
  std::string text;
  for (const Json& stage : described["stages"]) {
    for (const Json& device : described["devices"]) {
      if (device["stage"] != stage["stage"]) continue;
      text += fmt::format("  stage {} on {}: {} to {}, {} a device\n", stage["stage"].get<int>(),
                          shortened(stage["devices"].get<std::string>()),
                          stage["first"].get<std::string>(), stage["last"].get<std::string>(),
                          size_text(device["peak_bytes"]));
      break;
    }
  }
  return text;
}

std::string format_prediction(const Json& described) {
  std::string text;
  if (described.contains("search")) text += format_search(described["search"]) + "\n";
  const Json& plan = described["plan"];
  text += fmt::format(
      "{} on {}, as {}, global batch {:.0f}, {}\n\n", described["model"].get<std::string>(),
      described["cluster"].get<std::string>(), described["system"].get<std::string>(),
      described["global_batch"].get<double>(), described["precision"].get<std::string>());
  text += format_stage_lines(described);
  const double samples = described["predicted_samples_per_second"].get<double>();
  text +=
      fmt::format("\nAbout {:.4g} s per step, {} samples/s, {} for 1281167 images. {}\n",
                  described["predicted_seconds_per_step"].get<double>(),
                  samples >= 1e5 ? fmt::format("{:.3g}", samples) : fmt::format("{:.1f}", samples),
                  epoch_text(described["predicted_epoch_seconds"].get<double>()),
                  error_sentence(described["error_estimate"]));
  if (described.contains("interval")) {
    text += described["interval"]["text"].get<std::string>() + "\n";
  }
  const int count = plan["microbatches"].get<int>();
  const std::string micro_batches =
      count == 1 ? "1 micro-batch" : fmt::format("{} micro-batches", count);
  if (described["stages"].size() > 1) {
    text += fmt::format("Schedule {}, {}; devices idle {:.0f} % of the time.\n",
                        plan["schedule"].get<std::string>(), micro_batches,
                        described["bubble"].get<double>() * 100);
  } else if (count > 1) {
    text += fmt::format("A step is {}, one after the other.\n", micro_batches);
  }
  if (described.contains("device_memory_bytes")) {
    text += fmt::format("{} the {} of a device.\n",
                        described["fits"].get<bool>() ? "Fits into" : "Does not fit into",
                        size_text(described["device_memory_bytes"]));
  }
  if (described.contains("host_memory_bytes")) {
    text += fmt::format("A host needs {} of its {}.\n", size_text(described["host_needs_bytes"]),
                        size_text(described["host_memory_bytes"]));
  }
  text += format_price(described);
  if (described.contains("accuracy")) text += described["accuracy"].get<std::string>() + "\n";
  for (const char* more : {"reason", "note", "advice"}) {
    if (described.contains(more)) text += described[more].get<std::string>() + "\n";
  }
  if (described.contains("explanation"))
    text += planner::format_explanation(described["explanation"]);
  return text;
}

void add_search(Json& described, Json search) {
  const Json& pipedream = search["pipedream"];
  described["pipedream"] = Json();
  if (!pipedream.is_null()) {
    for (const char* name : {"shape", "fits", "predicted_samples_per_second", "verdict"}) {
      described["pipedream"][name] = pipedream[name];
    }
  }
  described["search"] = std::move(search);
}

void deliver(const Json& described, const planner::Prediction& prediction,
             const PlanOutput& output) {
  if (!output.plan.empty()) write_text(output.plan, described["plan"].dump(2) + "\n");
  if (!output.trace.empty()) {
    runtime::write_trace(output.trace,
                         simulate::trace_log(prediction.simulation, prediction.result), true);
  }
  const std::string text = output.json ? described.dump(2) + "\n" : format_prediction(described);
  fmt::print("{}", with_flags(text));
}

}  // namespace millrace::cli
