#include "planner/cost/pipeline_simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "parallel/schedule.h"
#include "planner/cost/boundary.h"

namespace millrace {
namespace {

constexpr int kSteps = 12;  // besides those in which the pipeline fills and drains

}  // namespace

class StepBuilder {
 public:
  explicit StepBuilder(const StepInputs& inputs)
      : inputs_(inputs), job_(inputs.job), stages_(static_cast<int>(inputs.job.stages.size())) {
    result_.input.devices = inputs.cluster.devices();
    result_.input.links = inputs.fabric.links();
    for (int stage = 0; stage < stages_; ++stage) {
      rings_.push_back(inputs.fabric.ring(job_.stages[stage].devices));
      costs_.push_back(stage_cost(inputs.network, job_, stage, inputs.cluster, inputs.constants,
                                  inputs.software));
    }
    head_ = head_cost(job_, inputs.cluster, inputs.constants, inputs.software);
  }

  StepSimulation build() {
    int most_replicas = 1;
    if (job_.round_robin) {
      for (const PlannedStage& stage : job_.stages) {
        most_replicas = std::max(most_replicas, static_cast<int>(stage.devices.size()));
      }
    }
    const int warm_up = in_flight(job_, 0);
    steps_ = most_replicas * (kSteps + 2 * (warm_up / std::max(1, job_.micro_batches) + 1));
    result_.period_ = most_replicas;
    work_.assign(stages_, std::vector<Items>(static_cast<size_t>(steps_ * job_.micro_batches)));
    updates_.assign(stages_, std::vector<std::vector<int>>(steps_));
    emit();
    connect();
    result_.step_ends.resize(steps_);
    for (int stage = 0; stage < stages_; ++stage) {
      for (int step = 0; step < steps_; ++step) {
        const std::vector<int>& ends = updates_[stage][round_of(stage, step)];
        result_.step_ends[step].insert(result_.step_ends[step].end(), ends.begin(), ends.end());
      }
    }
    return std::move(result_);
  }

 private:
  struct Items {
    int forward = -1, first_backward = -1, last_backward = -1;
    int activation = -1, gradient = -1;  // messages that leave the stage
  };

  int replicas(int stage) const { return static_cast<int>(job_.stages[stage].devices.size()); }

  // Replicas that take turns update together, after each has had one mini-batch.
  int round_of(int stage, int step) const {
    return job_.round_robin ? std::min(step / replicas(stage), (steps_ - 1) / replicas(stage))
                            : step;
  }

  int device_of(int stage, int index) const {
    const std::vector<int>& devices = job_.stages[stage].devices;
    return job_.round_robin ? devices[index % devices.size()] : devices.front();
  }

  int lane_of(int device, const char* name, bool ordered) {
    const auto [found, added] =
        lanes_.try_emplace({device, name}, static_cast<int>(result_.input.lanes.size()));
    if (added) result_.input.lanes.push_back({device, name, ordered});
    return found->second;
  }

  int compute_lane(int device) {
    return lane_of(device, "compute", job_.order != PipelineOrder::stale);
  }

  int add(std::string name, const char* category, int lane, double seconds) {
    SimulationItem item;
    item.name = std::move(name);
    item.category = category;
    item.lane = lane;
    item.seconds = seconds;
    result_.input.items.push_back(std::move(item));
    return static_cast<int>(result_.input.items.size()) - 1;
  }

  SimulationItem& item(int id) { return result_.input.items[id]; }
  void follow(int id, int before) {
    if (id >= 0 && before >= 0) item(id).after.push_back(before);
  }

  Schedule schedule() const {
    ScheduleRequest request;
    request.kind = schedule_kind(job_.order);
    request.stages = stages_;
    request.micro_batches = job_.micro_batches;
    request.steps = steps_;
    request.round_robin = job_.round_robin;
    request.static_scheduling = job_.fixed_order;
    for (int stage = 0; job_.round_robin && stage < stages_; ++stage) {
      request.replicas.push_back(replicas(stage));
    }
    return make_schedule(request);
  }

  // The rows of the schedule, merged place by place, so that lanes that run what is ready prefer
  // the earlier micro-batch.
  void emit() {
    const Schedule table = schedule();
    size_t longest = 0;
    for (const Row& row : table.rows) longest = std::max(longest, row.tasks.size());
    for (size_t place = 0; place < longest; ++place) {
      for (const Row& row : table.rows) {
        if (place >= row.tasks.size()) continue;
        const Task& task = row.tasks[place];
        const int index = static_cast<int>(task.micro_batch);
        if (task.work == Work::forward) emit_forward(row.stage, index);
        if (task.work == Work::backward) emit_backward(row.stage, index);
        if (task.work == Work::update) {
          const auto update = table.update_of(row.stage, task.micro_batch);
          emit_update(row.stage, row.replica, static_cast<int>(update));
        }
      }
    }
  }

  // A message to the next or previous stage.
  int emit_message(int from, int to, int index, double bytes, const char* name) {
    const int source = device_of(from, index), target = device_of(to, index);
    if (source == target) {
      if (inputs_.software.boundary_rate <= 0) return -1;
      const double seconds = bytes / replicas(from) / inputs_.software.boundary_rate;
      return add(fmt::format("{} {}", name, index), "transfer", compute_lane(source), seconds);
    }
    const int id = add(fmt::format("{} {}", name, index), "transfer", -1, 0);
    const LinkPath route = inputs_.fabric.between(source, target);
    if (job_.round_robin) {
      route_message(item(id), route, bytes, inputs_.software.transfer_efficiency);
      return id;
    }
    const double share = bytes / std::min(replicas(from), replicas(to));
    route_message(item(id), route, share, 1);
    item(id).rate =
        share / boundary_seconds(job_.stages[from], job_.stages[to], bytes, inputs_.cluster,
                                 inputs_.fabric, inputs_.software.transfer_efficiency);
    return id;
  }

  void emit_forward(int stage, int index) {
    Items& work = work_[stage][index];
    const int lane = compute_lane(device_of(stage, index));
    work.forward = add(fmt::format("F{}.{}", stage, index), "forward", lane, costs_[stage].forward);
    if (stage + 1 < stages_) {
      work.activation =
          emit_message(stage, stage + 1, index, costs_[stage].boundary_bytes, "activations");
    }
  }

  bool ends_step(int index) const {
    return job_.round_robin || (index + 1) % job_.micro_batches == 0;
  }

  void emit_backward(int stage, int index) {
    Items& work = work_[stage][index];
    const int device = device_of(stage, index);
    const int lane = compute_lane(device);
    if (stage + 1 == stages_) emit_head(work, lane, index);
    const bool reduces = ends_step(index) && replicas(stage) > 1 && !job_.round_robin;
    const StageCost& cost = costs_[stage];
    std::vector<BackwardPart> parts = cost.backward;
    if (!reduces) parts = {{cost.backward_seconds(), cost.gradient_bytes()}};
    if (reduces && stage + 1 == stages_ && head_.gradient_bytes > 0) {
      parts.insert(parts.begin(), {0, head_.gradient_bytes});
    }
    double left = 0;
    int last_collective = -1;
    for (const BackwardPart& part : parts) {
      const int id = add(fmt::format("B{}.{}", stage, index), "backward", lane, part.seconds);
      if (work.first_backward < 0) work.first_backward = id;
      follow(id, work.last_backward);
      work.last_backward = id;
      if (!reduces) continue;
      const double beside = part.gradient_bytes * inputs_.software.overlap;
      left += part.gradient_bytes - beside;
      last_collective = emit_reduce(stage, index, beside, lane_of(device, "collectives", true));
      follow(last_collective, id);
    }
    if (stage > 0) {
      const double bytes = costs_[stage - 1].boundary_bytes;
      work.gradient = emit_message(stage, stage - 1, index, bytes, "gradients");
    }
    if (!reduces) return;
    const bool stale = job_.order == PipelineOrder::stale;
    if (stale) {  // other micro-batches go on beside part of what is left
      const double beside = left * inputs_.software.stale_overlap;
      left -= beside;
      last_collective = emit_reduce(stage, index, beside, lane_of(device, "collectives", true));
      follow(last_collective, work.last_backward);
    }
    const int rest = emit_reduce(stage, index, left, lane);
    follow(rest, work.last_backward);
    if (stale) {
      item(rest).links.clear();  // its turn on the links is counted with the other part
    } else {
      follow(rest, last_collective);
    }
    collectives_[{stage, index / job_.micro_batches}] = {rest, last_collective};
  }

  int emit_reduce(int stage, int index, double bytes, int lane) {
    const int id = add(fmt::format("sum of gradients {}.{}", stage, index), "collective", lane, 0);
    if (bytes <= 0) return id;
    // Replicas that share the update sum only their own part: half of an all-reduce.
    const double share = costs_[stage].gather_bytes > 0 ? 0.5 : 1;
    route_all_reduce(item(id), rings_[stage], replicas(stage), bytes * share,
                     inputs_.software.collective_efficiency);
    return id;
  }

  // Replicas that share the update give each other their parts of the new weights.
  int emit_weights(int stage, int step, int update) {
    const int id = add(fmt::format("weights {}.{}", stage, step), "collective",
                       compute_lane(job_.stages[stage].devices.front()), 0);
    route_all_gather(item(id), rings_[stage], replicas(stage), costs_[stage].gather_bytes,
                     inputs_.software.collective_efficiency);
    follow(id, update);
    return id;
  }

  // Gather the embeddings, compute the classifier forward and backward, return their gradients.
  void emit_head(Items& work, int lane, int index) {
    if (job_.head.parallel == PlannedHead::Parallel::none) return;
    const std::vector<int>& devices = job_.stages.back().devices;
    const int members = static_cast<int>(devices.size());
    const LinkPath ring = rings_.back();
    const double efficiency = inputs_.software.collective_efficiency;
    const auto gather = [&](const char* name) {
      const int id = add(name, "collective", lane, 0);
      if (head_.gather_bytes > 0) {
        route_all_gather(item(id), ring, members, head_.gather_bytes, efficiency);
      }
      return id;
    };
    work.first_backward = gather("embeddings");
    add(fmt::format("head {}", index), "forward", lane, head_.compute);
    gather("gradients of embeddings");
  }

  void emit_update(int stage, int replica, int step) {
    if (!job_.round_robin) {
      const int id = add(fmt::format("U{}.{}", stage, step), "update",
                         compute_lane(job_.stages[stage].devices.front()), costs_[stage].update);
      const bool shared = costs_[stage].gather_bytes > 0;
      updates_[stage][step].push_back(shared ? emit_weights(stage, step, id) : id);
      const auto found = collectives_.find({stage, step});
      if (found != collectives_.end()) {
        follow(id, found->second.first);
        follow(id, found->second.second);
      }
      follow(id, work_[stage][(step + 1) * job_.micro_batches - 1].last_backward);
      return;
    }
    const int lane = compute_lane(job_.stages[stage].devices[replica]);
    const int id = add(fmt::format("U{}.{}", stage, step), "update", lane, costs_[stage].update);
    updates_[stage][step].push_back(id);
  }

  // Dependencies between stages, and those that bound staleness.
  void connect() {
    for (int stage = 0; stage < stages_; ++stage) {
      for (size_t i = 0; i < work_[stage].size(); ++i) {
        const Items& work = work_[stage][i];
        follow(work.first_backward, work.forward);
        follow(work.activation, work.forward);
        follow(work.gradient, work.last_backward);
        if (stage > 0) {
          const Items& before = work_[stage - 1][i];
          follow(work.forward, before.activation >= 0 ? before.activation : before.forward);
          follow(before.first_backward, work.gradient >= 0 ? work.gradient : work.last_backward);
        }
        if (job_.order == PipelineOrder::stale) bound_staleness(stage, static_cast<int>(i));
      }
      if (job_.round_robin) connect_rounds(stage);
    }
  }

  void bound_staleness(int stage, int index) {
    const int unseen = index / job_.micro_batches - in_flight(job_, stage);
    if (unseen < 0) return;
    for (const int id : updates_[stage][unseen]) follow(work_[stage][index].forward, id);
  }

  // One sum of gradients for each round of the replicas, before their updates.
  void connect_rounds(int stage) {
    const int rows = replicas(stage);
    const LinkPath ring = rings_[stage];
    for (int round = 0; round * rows < steps_; ++round) {
      const int sum = add(fmt::format("sum of gradients {}.{}", stage, round), "collective", -1, 0);
      if (rows > 1) {
        route_all_reduce(item(sum), ring, rows, costs_[stage].gradient_bytes(),
                         inputs_.software.collective_efficiency);
      }
      for (int i = round * rows; i < std::min((round + 1) * rows, steps_); ++i) {
        follow(sum, work_[stage][i].last_backward);
      }
      for (const int id : updates_[stage][round]) follow(id, sum);
    }
  }

  const StepInputs& inputs_;
  const PlannedJob& job_;
  const int stages_;
  int steps_ = 0;
  std::vector<StageCost> costs_;
  std::vector<LinkPath> rings_;  // of each stage
  HeadCost head_;
  std::map<std::pair<int, std::string>, int> lanes_;
  std::vector<std::vector<Items>> work_;                // [stage][micro-batch]
  std::vector<std::vector<std::vector<int>>> updates_;  // [stage][step]
  std::map<std::pair<int, int>, std::pair<int, int>> collectives_;
  StepSimulation result_;
};

double StepSimulation::pace(const SimulationResult& result) const {
  const auto end_of = [&](int step) {
    double end = 0;
    for (const int id : step_ends[step]) end = std::max(end, result.end[id]);
    return end;
  };
  const int steps = static_cast<int>(step_ends.size());
  const int last = steps - 1 - steps / 4;
  // Lanes that run what is ready may fall into a rhythm of a few steps.
  const int rhythm = 4 * period_;
  const int room = last - steps / 4;
  const int span = room >= rhythm ? room / rhythm * rhythm : std::min(last, period_);
  return span < 1 ? end_of(0) : (end_of(last) - end_of(last - span)) / span;
}

StepSimulation simulate_steps(const StepInputs& inputs) { return StepBuilder(inputs).build(); }

}  // namespace millrace
