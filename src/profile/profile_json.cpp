#include <cmath>

#include "base/error.h"
#include "base/json_text.h"
#include "profile/job_profile.h"

namespace millrace::profile {
namespace {

constexpr int kProfileVersion = 2;
constexpr double kMost = 1e18;

// Reads fields and knows where it is, for errors.
class Reader {
 public:
  explicit Reader(std::string_view file) : file_(file) {}

  [[noreturn]] void fail(const std::string& what) const {
    fail_input("'{}' is not a profile that can be read: {}.", file_, what);
  }

  const Json& field(const Json& object, const char* name) const {
    if (!object.is_object()) fail(fmt::format("something with a '{}' is not an object", name));
    const auto found = object.find(name);
    if (found == object.end()) fail(fmt::format("'{}' is missing", name));
    return *found;
  }

  // `value` is called `name` in errors.
  double value(const Json& value, std::string_view name) const {
    const double number = value.is_number() ? value.get<double>() : -1;
    if (!(number >= 0 && number <= kMost)) {
      fail(fmt::format("{} is not a number from 0 to 1e18", name));
    }
    return number;
  }

  double number(const Json& object, const char* name) const {
    return value(field(object, name), fmt::format("'{}'", name));
  }

  double rate(const Json& object, const char* name) const {
    const double number = this->number(object, name);
    if (!(number >= 1)) fail(fmt::format("'{}' is below 1 byte per second", name));
    return number;
  }

  int64_t count(const Json& object, const char* name) const {
    const double value = number(object, name);
    if (value != std::floor(value) || value > 1e9) {
      fail(fmt::format("'{}' is not a whole number up to 1e9", name));
    }
    return static_cast<int64_t>(value);
  }

  std::string text(const Json& object, const char* name) const {
    const Json& value = field(object, name);
    if (!value.is_string()) fail(fmt::format("'{}' is not text", name));
    return value.get<std::string>();
  }

  const Json& list(const Json& object, const char* name) const {
    const Json& value = field(object, name);
    if (!value.is_array()) fail(fmt::format("'{}' is not a list", name));
    return value;
  }

 private:
  std::string_view file_;
};

Json to_json(const OperatorCost& cost) {
  return {{"name", cost.name},
          {"type", cost.type},
          {"implementation", cost.implementation},
          {"phase", cost.phase},
          {"seconds", cost.seconds},
          {"alone_seconds", cost.alone_seconds},
          {"spread", cost.spread},
          {"arithmetic", cost.arithmetic},
          {"bytes", cost.bytes}};
}

Json to_json(const LayerCost& layer) {
  return {{"name", layer.name},
          {"type", layer.type},
          {"forward_seconds", layer.forward_seconds},
          {"backward_seconds", layer.backward_seconds},
          {"update_seconds", layer.update_seconds},
          {"activation_bytes", layer.activation_bytes},
          {"parameter_bytes", layer.parameter_bytes},
          {"inputs", layer.inputs}};
}

OperatorCost operator_from(const Reader& reader, const Json& entry) {
  OperatorCost cost;
  cost.name = reader.text(entry, "name");
  cost.type = reader.text(entry, "type");
  cost.implementation = reader.text(entry, "implementation");
  cost.phase = reader.text(entry, "phase");
  if (cost.phase != "forward" && cost.phase != "backward" && cost.phase != "update") {
    reader.fail(fmt::format("'phase' is '{}'", cost.phase));
  }
  cost.seconds = reader.number(entry, "seconds");
  cost.alone_seconds = reader.number(entry, "alone_seconds");
  cost.spread = reader.number(entry, "spread");
  cost.arithmetic = reader.number(entry, "arithmetic");
  cost.bytes = reader.number(entry, "bytes");
  return cost;
}

Json to_json(const ExchangeSpeed& speed) {
  return {{"message_bandwidth", speed.message.bandwidth},
          {"message_latency", speed.message.latency},
          {"collective_rate", speed.collective_rate},
          {"collective_latency", speed.collective_latency}};
}

ExchangeSpeed exchange_from(const Reader& reader, const Json& entry) {
  return {{reader.rate(entry, "message_bandwidth"), reader.number(entry, "message_latency")},
          reader.rate(entry, "collective_rate"),
          reader.number(entry, "collective_latency")};
}

ProgramProfile program_from(const Reader& reader, const Json& entry) {
  ProgramProfile program;
  program.stage = static_cast<int>(reader.count(entry, "stage"));
  program.member = static_cast<int>(reader.count(entry, "member"));
  for (const Json& seconds : reader.list(entry, "round_seconds")) {
    program.round_seconds.push_back(reader.value(seconds, "one of 'round_seconds'"));
  }
  const Json& copies = reader.field(entry, "copies");
  if (!copies.is_object()) reader.fail("'copies' is not an object");
  for (const auto& [name, seconds] : copies.items()) {
    program.copies[name] = reader.value(seconds, "one of 'copies'");
  }
  program.carry_seconds = reader.number(entry, "carry_seconds");
  for (const Json& cost : reader.list(entry, "operators")) {
    program.operators.push_back(operator_from(reader, cost));
  }
  return program;
}

LayerCost layer_from(const Reader& reader, const Json& entry, size_t place) {
  LayerCost layer;
  layer.name = reader.text(entry, "name");
  layer.type = reader.text(entry, "type");
  layer.forward_seconds = reader.number(entry, "forward_seconds");
  layer.backward_seconds = reader.number(entry, "backward_seconds");
  layer.update_seconds = reader.number(entry, "update_seconds");
  layer.activation_bytes = reader.number(entry, "activation_bytes");
  layer.parameter_bytes = reader.number(entry, "parameter_bytes");
  for (const Json& input : reader.list(entry, "inputs")) {
    const int64_t from =
        input.is_number_unsigned()
            ? static_cast<int64_t>(std::min<uint64_t>(input.get<uint64_t>(), 1u << 30))
            : -1;
    if (from < 0 || from >= static_cast<int64_t>(place)) {
      reader.fail(fmt::format("an input of layer '{}' is no layer before it", layer.name));
    }
    layer.inputs.push_back(static_cast<int>(from));
  }
  return layer;
}

}  // namespace

Json to_json(const JobProfile& profile) {
  Json json = {{"millrace_profile", kProfileVersion},
               {"model", profile.model},
               {"batch", profile.batch},
               {"micro_batch", profile.micro_batch},
               {"samples", profile.samples},
               {"image", profile.image},
               {"threads_per_device", profile.threads},
               {"devices_at_work", profile.devices},
               {"rounds", profile.rounds},
               {"step_spread", profile.step_spread},
               {"other_seconds", profile.other_seconds},
               {"exchange", to_json(profile.exchange)},
               {"programs", Json::array()},
               {"layers", Json::array()}};
  for (const ProgramProfile& program : profile.programs) {
    Json entry = {{"stage", program.stage},
                  {"member", program.member},
                  {"round_seconds", program.round_seconds},
                  {"copies", program.copies},
                  {"carry_seconds", program.carry_seconds},
                  {"operators", Json::array()}};
    for (const OperatorCost& cost : program.operators) entry["operators"].push_back(to_json(cost));
    json["programs"].push_back(std::move(entry));
  }
  for (const LayerCost& layer : profile.layers) json["layers"].push_back(to_json(layer));
  return json;
}

JobProfile parse_job_profile(std::string_view text, std::string_view file) {
  const Reader reader(file);
  const Json json = parse_json(text);
  if (json.is_discarded()) reader.fail("it is not JSON");
  if (reader.count(json, "millrace_profile") != kProfileVersion) {
    reader.fail("'millrace_profile' is another version than 2");
  }
  JobProfile profile;
  profile.model = reader.text(json, "model");
  profile.batch = reader.count(json, "batch");
  profile.micro_batch = reader.count(json, "micro_batch");
  profile.samples = reader.count(json, "samples");
  if (profile.samples < 1) reader.fail("'samples' is 0");
  profile.image = reader.count(json, "image");
  profile.threads = static_cast<int>(reader.count(json, "threads_per_device"));
  profile.devices = static_cast<int>(reader.count(json, "devices_at_work"));
  profile.rounds = static_cast<int>(reader.count(json, "rounds"));
  profile.step_spread = reader.number(json, "step_spread");
  profile.other_seconds = reader.number(json, "other_seconds");
  profile.exchange = exchange_from(reader, reader.field(json, "exchange"));
  for (const Json& entry : reader.list(json, "programs")) {
    profile.programs.push_back(program_from(reader, entry));
  }
  for (const Json& entry : reader.list(json, "layers")) {
    profile.layers.push_back(layer_from(reader, entry, profile.layers.size()));
  }
  return profile;
}

}  // namespace millrace::profile
