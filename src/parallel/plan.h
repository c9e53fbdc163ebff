// Where each part of a job runs, and in what order. Plain data, printed and read as JSON.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "parallel/placement.h"
#include "parallel/policy.h"
#include "parallel/schedule.h"

namespace millrace::parallel {

struct Plan {
  // The devices of each stage, at least one stage. Stages may share devices.
  std::vector<Placement> stages = {Placement{{DeviceId{}}}};

  // How the work of a stage is divided over its devices.
  ShardingPolicy sharding;
  bool round_robin = false;      // whole micro-batches in turn instead of a part of each
  bool share_optimizer = false;  // each device keeps a part of the optimizer state

  // Where the network is cut: after these layers, or by these shares of the operators, or, with
  // neither, so that the stages take the same time.
  std::vector<std::string> cut_after = {};
  std::vector<int64_t> stage_weights = {};

  ScheduleKind schedule = ScheduleKind::one_f_one_b_flush;
  bool static_scheduling = true;
  int64_t micro_batches = 1;  // of a step

  int stage_count() const { return static_cast<int>(stages.size()); }

  // Every device once, in order.
  std::vector<DeviceId> devices() const;

  // The place among `devices` of each device of each stage.
  std::vector<std::vector<int>> device_numbers() const;

  // How many placements take the stages in turn, each several times: 2 for 0:0.0:1.0:0.0:1; as many
  // as stages where none comes again, 0 where they come in some other way.
  int turns() const;

  // Whether a step is one program from end to end on each device.
  bool runs_whole() const {
    const bool takes_turns = round_robin && stages[0].size() > 1;
    return stages.size() == 1 && micro_batches == 1 && !takes_turns;
  }

  // "single", "data", "model", "hybrid", "accumulate", or the name of the pipeline's schedule.
  std::string schedule_name() const;
};

Json to_json(const Plan& plan);

// Throws InputError that starts with `source` and names the field at fault. Fields that are not
// there keep their defaults; unknown ones are refused.
Plan parse_plan(const Json& json, std::string_view source);

// The devices of each process, in order. Throws InputError unless each has one, and none is on a
// node beyond them.
std::vector<std::vector<DeviceId>> devices_by_rank(const Plan& plan, int ranks);

// Throws InputError where the parts do not fit each other, naming the flags.
void check(const Plan& plan, int64_t global_batch);

}  // namespace millrace::parallel
