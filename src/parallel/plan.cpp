#include "parallel/plan.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "parallel/partition.h"

namespace millrace::parallel {
namespace {

constexpr int64_t kMostMicroBatches = int64_t{1} << 20;

template <typename T>
T field(const Json& json, std::string_view name, std::string_view source) {
  try {
    return json.at(std::string(name)).get<T>();
  } catch (const Json::exception&) {
    fail_input("{}: field '{}' has a value of the wrong kind.", source, name);
  }
}

// A number that stands in field `name`.
int64_t count_of(const Json& value, int64_t most, std::string_view name, std::string_view source) {
  const double number = value.is_number() ? value.get<double>() : 0;
  if (number >= 1 && number <= static_cast<double>(most) && number == std::floor(number)) {
    return static_cast<int64_t>(number);
  }
  fail_input("{}: '{}' has {} where a whole number from 1 to {} should be.", source, name,
             value.dump().substr(0, 40), most);
}

std::vector<int64_t> counts_of(const Json& values, int64_t most, std::string_view name,
                               std::string_view source) {
  if (!values.is_array()) {
    fail_input("{}: field '{}' has a value of the wrong kind.", source, name);
  }
  std::vector<int64_t> counts;
  for (const Json& value : values) counts.push_back(count_of(value, most, name, source));
  return counts;
}

}  // namespace

std::vector<DeviceId> Plan::devices() const {
  std::set<DeviceId> all;
  for (const Placement& stage : stages) all.insert(stage.devices.begin(), stage.devices.end());
  return {all.begin(), all.end()};
}

std::vector<std::vector<int>> Plan::device_numbers() const {
  const std::vector<DeviceId> all = devices();
  std::vector<std::vector<int>> numbers;
  for (const Placement& stage : stages) {
    numbers.emplace_back();
    for (const DeviceId& id : stage.devices) {
      const auto place = std::lower_bound(all.begin(), all.end(), id) - all.begin();
      numbers.back().push_back(static_cast<int>(place));
    }
  }
  return numbers;
}

int Plan::turns() const {
  size_t turns = 1;
  while (turns < stages.size() && stages[turns] != stages[0]) ++turns;
  for (size_t stage = turns; stage < stages.size(); ++stage) {
    if (stages[stage] != stages[stage - turns]) return 0;
  }
  int devices_of_turns = 0;
  for (size_t stage = 0; stage < turns; ++stage) devices_of_turns += stages[stage].size();
  const bool apart = devices_of_turns == static_cast<int>(devices().size());
  return apart && stages.size() % turns == 0 ? static_cast<int>(turns) : 0;
}

std::string Plan::schedule_name() const {
  if (stages.size() > 1) return std::string(name_of(schedule));
  if (!runs_whole()) return "accumulate";
  if (stages[0].size() > 1) return std::string(name_of(sharding.parallelism));
  return "single";
}

std::vector<std::vector<DeviceId>> devices_by_rank(const Plan& plan, int ranks) {
  std::vector<std::vector<DeviceId>> devices(static_cast<size_t>(ranks));
  for (const DeviceId& device : plan.devices()) {
    if (device.node >= ranks) {
      fail_input(
          "‹placement› names node {}, but the job has {} process{}; start it with mpirun -n {}.",
          device.node, ranks, ranks == 1 ? "" : "es", device.node + 1);
    }
    devices[static_cast<size_t>(device.node)].push_back(device);
  }
  for (int rank = 0; rank < ranks; ++rank) {
    if (devices[static_cast<size_t>(rank)].empty()) {
      fail_input("‹placement› gives nothing to process {} of {}.", rank, ranks);
    }
  }
  return devices;
}

Json to_json(const Plan& plan) {
  Json json;
  json["placement"] = to_string(plan.stages);
  json["parallel"] = name_of(plan.sharding.parallelism);
  Json layers = Json::object();
  for (const auto& [name, sharding] : plan.sharding.layers) layers[name] = name_of(sharding);
  json["layers"] = layers;
  json["synchronise_batch_norm"] = plan.sharding.synchronise_batch_norm;
  json["replicas"] = plan.round_robin ? "roundrobin" : "split";
  json["share_optimizer"] = plan.share_optimizer;
  json["cut_after"] = plan.cut_after;
  json["stage_weights"] = plan.stage_weights;
  json["schedule"] = name_of(plan.schedule);
  json["static_scheduling"] = plan.static_scheduling;
  json["microbatches"] = plan.micro_batches;
  return json;
}

Plan parse_plan(const Json& json, std::string_view source) {
  if (!json.is_object()) fail_input("{}: a plan is a JSON object.", source);
  static const std::set<std::string> kKnown = {
      "placement", "parallel",        "layers",           "synchronise_batch_norm",
      "replicas",  "share_optimizer", "cut_after",        "stage_weights",
      "schedule",  "microbatches",    "static_scheduling"};
  for (const auto& [name, value] : json.items()) {
    if (!kKnown.contains(name)) fail_input("{}: there is no field '{}' in a plan.", source, name);
  }
  Plan plan;
  const auto has = [&](const char* name) { return json.contains(name); };
  const auto where = [&](const char* name) { return fmt::format("{}: {}", source, name); };
  if (has("placement")) {
    plan.stages = parse_stages(field<std::string>(json, "placement", source), where("placement"));
  }
  if (has("parallel")) {
    plan.sharding.parallelism =
        parse_parallelism(field<std::string>(json, "parallel", source), where("parallel"));
  }
  if (has("layers")) {
    const auto layers = field<std::map<std::string, std::string>>(json, "layers", source);
    for (const auto& [name, value] : layers) {
      plan.sharding.layers[name] =
          parse_layer_sharding(value, fmt::format("{}: layer '{}'", source, name));
    }
  }
  if (has("synchronise_batch_norm")) {
    plan.sharding.synchronise_batch_norm = field<bool>(json, "synchronise_batch_norm", source);
  }
  if (has("replicas")) {
    const auto replicas = field<std::string>(json, "replicas", source);
    if (replicas != "split" && replicas != "roundrobin") {
      fail_input("{}: replicas is '{}'; choose split or roundrobin.", source, replicas);
    }
    plan.round_robin = replicas == "roundrobin";
  }
  if (has("share_optimizer")) plan.share_optimizer = field<bool>(json, "share_optimizer", source);
  if (has("cut_after")) {
    plan.cut_after = field<std::vector<std::string>>(json, "cut_after", source);
  }
  if (has("stage_weights")) {
    plan.stage_weights =
        counts_of(json["stage_weights"], kMostStageWeight, "stage_weights", source);
  }
  if (has("schedule")) {
    plan.schedule = parse_schedule(field<std::string>(json, "schedule", source));
  }
  if (has("static_scheduling")) {
    plan.static_scheduling = field<bool>(json, "static_scheduling", source);
  }
  if (has("microbatches")) {
    plan.micro_batches = count_of(json["microbatches"], kMostMicroBatches, "microbatches", source);
  }
  return plan;
}

namespace {

// A device with several stages takes them in a fixed order, which those that share a stage with it
// would have to keep to as well.
void check_free_order(const Plan& plan) {
  if (plan.schedule != ScheduleKind::ssp || plan.static_scheduling) return;
  for (const DeviceId& device : plan.devices()) {
    const auto holds = [&](const Placement& stage) {
      return std::find(stage.devices.begin(), stage.devices.end(), device) != stage.devices.end();
    };
    if (std::count_if(plan.stages.begin(), plan.stages.end(), holds) < 2) continue;
    fail_input(
        "‹static_scheduling› off lets each device run what is ready, but device {} has several "
        "stages, which take turns in a fixed order; give every stage devices of its own, or leave "
        "the flag out.",
        to_string(device));
  }
}

}  // namespace

void check(const Plan& plan, int64_t global_batch) {
  const auto stages = plan.stages.size();
  if (plan.micro_batches < 1 || global_batch % plan.micro_batches != 0) {
    fail_input("‹microbatches› is {}, which does not divide the {} samples of a step.",
               plan.micro_batches, global_batch);
  }
  if (!plan.cut_after.empty() && !plan.stage_weights.empty()) {
    fail_input("‹cut_after› and ‹stage_weights› both say where to cut; give one of them.");
  }
  if (!plan.cut_after.empty() && plan.cut_after.size() + 1 != stages) {
    fail_input("‹cut_after› names {} layers, which makes {} stages, but ‹placement› has {}.",
               plan.cut_after.size(), plan.cut_after.size() + 1, stages);
  }
  if (!plan.stage_weights.empty() && plan.stage_weights.size() != stages) {
    fail_input("‹stage_weights› has {} shares but ‹placement› has {} stages.",
               plan.stage_weights.size(), stages);
  }
  if (stages > 1 && plan.sharding.parallelism != Parallelism::data) {
    fail_input("‹parallel› {} works within one stage; use data with several.",
               name_of(plan.sharding.parallelism));
  }
  if (stages > 1 && !plan.sharding.layers.empty()) {
    fail_input(
        "The plan divides the layer '{}', which works within one stage; leave 'layers' out with "
        "several.",
        plan.sharding.layers.begin()->first);
  }
  check_free_order(plan);
  if (plan.round_robin && plan.sharding.synchronise_batch_norm) {
    fail_input(
        "‹sync_batch_norm› has no effect with ‹replicas› roundrobin, whose devices take whole "
        "micro-batches; leave one of them out.");
  }
}

}  // namespace millrace::parallel
