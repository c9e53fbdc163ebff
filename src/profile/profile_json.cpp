#include "base/json_text.h"
#include "profile/job_profile.h"
#include "profile/json_fields.h"

namespace millrace::profile {
namespace {

constexpr int kProfileVersion = 2;

}  // namespace

template <typename Visit>
void visit_fields(OperatorCost& cost, Visit& visit) {
  visit("name", cost.name);
  visit("type", cost.type);
  visit("implementation", cost.implementation);
  visit("phase", cost.phase);
  visit("seconds", cost.seconds);
  visit("alone_seconds", cost.alone_seconds);
  visit("spread", cost.spread);
  visit("arithmetic", cost.arithmetic);
  visit("bytes", cost.bytes);
}

template <typename Visit>
void visit_fields(LayerCost& layer, Visit& visit) {
  visit("name", layer.name);
  visit("type", layer.type);
  visit("forward_seconds", layer.forward_seconds);
  visit("backward_seconds", layer.backward_seconds);
  visit("update_seconds", layer.update_seconds);
  visit("activation_bytes", layer.activation_bytes);
  visit("parameter_bytes", layer.parameter_bytes);
  visit("inputs", layer.inputs);
}

template <typename Visit>
void visit_fields(ExchangeSpeed& speed, Visit& visit) {
  visit("message_bandwidth", speed.message.bandwidth);
  visit("message_latency", speed.message.latency);
  visit("collective_rate", speed.collective_rate);
  visit("collective_latency", speed.collective_latency);
}

template <typename Visit>
void visit_fields(ProgramProfile& program, Visit& visit) {
  visit("stage", program.stage);
  visit("member", program.member);
  visit("round_seconds", program.round_seconds);
  visit("copies", program.copies);
  visit("carry_seconds", program.carry_seconds);
  visit("operators", program.operators);
}

template <typename Visit>
void visit_fields(JobProfile& profile, Visit& visit) {
  visit("model", profile.model);
  visit("batch", profile.batch);
  visit("micro_batch", profile.micro_batch);
  visit("samples", profile.samples);
  visit("image", profile.image);
  visit("threads_per_device", profile.threads);
  visit("devices_at_work", profile.devices);
  visit("rounds", profile.rounds);
  visit("step_spread", profile.step_spread);
  visit("other_seconds", profile.other_seconds);
  visit("exchange", profile.exchange);
  visit("programs", profile.programs);
  visit("layers", profile.layers);
}

Json to_json(const JobProfile& profile) {
  JobProfile copy = profile;
  Json json = {{"millrace_profile", kProfileVersion}};
  json.update(written(copy));
  return json;
}

JobProfile parse_job_profile(std::string_view text, std::string_view file) {
  const Json json = parse_json(text);
  const FieldReader reader(json, file);
  int version = 0;
  reader("millrace_profile", version);
  if (version != kProfileVersion) reader.fail("'millrace_profile' is another version than 2");
  JobProfile profile;
  visit_fields(profile, reader);
  if (profile.samples < 1) reader.fail("'samples' is 0");
  for (const double rate : {profile.exchange.message.bandwidth, profile.exchange.collective_rate}) {
    if (rate < 1) reader.fail("a rate of 'exchange' is below 1 byte per second");
  }
  for (const ProgramProfile& program : profile.programs) {
    for (const OperatorCost& cost : program.operators) {
      if (cost.phase == "forward" || cost.phase == "backward" || cost.phase == "update") continue;
      reader.fail(fmt::format("'phase' is '{}'", cost.phase));
    }
  }
  for (size_t i = 0; i < profile.layers.size(); ++i) {
    for (const int input : profile.layers[i].inputs) {
      if (input >= 0 && input < static_cast<int>(i)) continue;
      reader.fail(
          fmt::format("an input of layer '{}' is no layer before it", profile.layers[i].name));
    }
  }
  return profile;
}

}  // namespace millrace::profile
