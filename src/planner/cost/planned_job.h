// A training job as the planner sees it: which layers run where, in which order, in what pieces.
// Plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/types.h"
#include "parallel/plan_file.h"
#include "planner/cost/network_work.h"

namespace millrace::planner {

// Layers [begin, end) on these devices, which share each batch (or take turns).
struct PlannedStage {
  std::vector<int> devices;
  int begin = 0;
  int end = 0;
};

// A classifier of many classes behind the network's embedding, on every device of the job.
struct PlannedHead {
  enum class Parallel : uint8_t { none, data, model, sampled };
  Parallel parallel = Parallel::none;
  double classes = 0;
  double features = 512;
  double sample_rate = 0.1;  // of `sampled`
};

struct PlannedJob {
  double batch = 1;  // samples per device of the whole job
  graph::DataType precision = graph::DataType::f32;
  std::optional<graph::DataType> wire =
      {};  // what travels between devices; else as the system does it
  std::vector<PlannedStage> stages;
  parallel::ScheduleKind schedule =
      parallel::ScheduleKind::one_f_one_b_flush;  // of a pipeline of several stages
  int micro_batches = 1;
  bool fixed_order = true;  // of `ssp`
  // How the devices of the only stage divide its layers. The network's work is then that of the
  // first of them; see work_of.
  parallel::Parallelism parallelism = parallel::Parallelism::data;
  bool round_robin = false;      // replicas take whole mini-batches of `batch` samples in turn
  bool share_optimizer = false;  // replicas of a stage keep a part of its state each
  bool recompute = false;        // keep only what enters a stage, compute the rest again
  bool real_data = false;
  int optimizer_states = 1;  // per weight
  PlannedHead head;

  int devices() const;  // distinct ones
  // How many placements take the stages in turn, as Plan::turns.
  int turns() const;
  // Bytes of each number between stages.
  double boundary_size() const {
    return static_cast<double>(graph::size_of(wire.value_or(precision)));
  }
  double samples_per_step() const;
  // Whether it computes what one device would.
  bool is_exact() const { return stages.size() == 1 || parallel::is_synchronous(schedule); }
};

// What its stages do in so many steps, and in as many as show all that is ever under way.
parallel::Schedule schedule_of(const PlannedJob& job, int64_t steps);
parallel::Schedule whole_schedule_of(const PlannedJob& job);

// The devices of each stage, counted through the cluster. Throws InputError naming `flag` and a
// device that does not exist.
std::vector<std::vector<int>> devices_on(const std::vector<parallel::Placement>& stages,
                                         int machines, int devices_per_machine,
                                         std::string_view flag);

// "0:0-6.0:7".
std::string format_stages(const std::vector<PlannedStage>& stages, int devices_per_machine);

// The same with all else that the job says, for a plan that runs it on this cluster.
parallel::PlanFile plan_file_of(parallel::Plan plan, const PlannedJob& job, std::string model,
                                std::string cluster);

// The plan that runs the job.
parallel::Plan plan_of(const NetworkWork& network, const PlannedJob& job, int devices_per_machine);

// Where each stage ends, as layer indices, by shares of the operators that carry or follow weights,
// in order (the rule of assign_by_share). Throws InputError naming `flag`.
std::vector<int> cut_by_operators(const NetworkWork& network, const std::vector<int64_t>& shares,
                                  std::string_view flag);

// The same by the last layer of each stage but the last. Throws InputError for a name that no layer
// has, or names out of order.
std::vector<int> cut_after(const NetworkWork& network, const std::vector<std::string>& names,
                           std::string_view flag);

}  // namespace millrace::planner
