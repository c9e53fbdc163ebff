#include "planner/cost/pipeline_simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "parallel/schedule.h"
#include "parallel/simulation.h"
#include "planner/cost/stage_traffic.h"

namespace millrace::planner {
namespace {

constexpr int kSteps = 12;  // besides those in which the pipeline fills and drains

}  // namespace

class StepBuilder : private StageTraffic {
 public:
  explicit StepBuilder(const StepInputs& inputs)
      : StageTraffic(inputs),
        inputs_(inputs),
        job_(inputs.job),
        stages_(static_cast<int>(inputs.job.stages.size())),
        head_(head_cost(job_, inputs.cluster, inputs.constants, inputs.software)) {}

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
    result_.input = std::move(input());
    return std::move(result_);
  }

 private:
  struct Items {
    int first_forward = -1, forward = -1, first_backward = -1;
    int last_input = -1;                 // behind it the gradient for the stage before is there
    int last_backward = -1;              // and behind it those of the weights
    int activation = -1, gradient = -1;  // messages that leave the stage
  };

  // Replicas that take turns update together, after each has had one mini-batch.
  int round_of(int stage, int step) const {
    return job_.round_robin ? std::min(step / replicas(stage), (steps_ - 1) / replicas(stage))
                            : step;
  }

  parallel::Schedule schedule() const {
    parallel::ScheduleRequest request;
    request.kind = job_.schedule;
    request.stages = stages_;
    request.micro_batches = job_.micro_batches;
    request.steps = steps_;
    request.round_robin = job_.round_robin;
    request.static_scheduling = job_.fixed_order;
    if (job_.schedule == parallel::ScheduleKind::interleaved) request.turns = job_.turns();
    for (int stage = 0; job_.round_robin && stage < stages_; ++stage) {
      request.replicas.push_back(replicas(stage));
    }
    return parallel::make_schedule(request);
  }

  int device_of_row(const parallel::Row& row) const {
    const std::vector<int>& devices = job_.stages[static_cast<size_t>(row.stage)].devices;
    return devices[job_.round_robin ? static_cast<size_t>(row.replica) : 0];
  }

  // What each device does, in order; stages that share one are merged as at run time. Lanes that
  // run what is ready have an order for each row.
  std::vector<std::vector<parallel::RowTask>> orders_of(const parallel::Schedule& table) const {
    if (!table.orders.empty()) return table.orders;
    std::map<int, std::vector<int>> rows;
    for (int row = 0; row < static_cast<int>(table.rows.size()); ++row) {
      const bool free = job_.schedule == parallel::ScheduleKind::ssp;
      rows[free ? row : device_of_row(table.rows[static_cast<size_t>(row)])].push_back(row);
    }
    const bool shared = rows.size() < table.rows.size();
    const auto channels =
        shared ? parallel::channels_between(table) : std::vector<parallel::Channel>();
    std::vector<std::vector<parallel::RowTask>> orders;
    for (const auto& [device, own] : rows) {
      orders.push_back(parallel::interleave(table, own, channels));
    }
    return orders;
  }

  // The orders of the devices, merged place by place, so that lanes that run what is ready prefer
  // the earlier micro-batch.
  void emit() {
    const parallel::Schedule table = schedule();
    const std::vector<std::vector<parallel::RowTask>> orders = orders_of(table);
    size_t longest = 0;
    for (const auto& order : orders) longest = std::max(longest, order.size());
    for (size_t place = 0; place < longest; ++place) {
      for (const auto& order : orders) {
        if (place < order.size()) emit_task(table, order[place]);
      }
    }
  }

  void emit_task(const parallel::Schedule& table, const parallel::RowTask& one) {
    const parallel::Row& row = table.rows[static_cast<size_t>(one.row)];
    const int index = static_cast<int>(one.task.micro_batch);
    switch (one.task.work) {
      case parallel::Work::forward:
        return emit_forward(row.stage, index);
      case parallel::Work::backward:
        return emit_backward(row.stage, index);
      case parallel::Work::backward_input:
        return emit_backward_input(row.stage, index);
      case parallel::Work::backward_weights:
        return emit_backward_weights(row.stage, index);
      case parallel::Work::update:
        return emit_update(row.stage, row.replica,
                           static_cast<int>(table.update_of(row.stage, one.task.micro_batch)));
    }
  }

  void emit_forward(int stage, int index) {
    Items& work = work_[stage][index];
    const int lane = compute_lane(device_of(stage, index));
    work.first_forward =
        add(fmt::format("F{}.{}", stage, index), "forward", lane, cost(stage).forward);
    work.forward = emit_exchanges(stage, lane, work.first_forward, cost(stage).forward_exchanges);
    if (stage + 1 < stages_) {
      work.activation =
          emit_message(stage, stage + 1, index, cost(stage).boundary_bytes, "activations");
    }
  }

  bool ends_step(int index) const {
    return job_.round_robin || (index + 1) % job_.micro_batches == 0;
  }

  // Sums of gradients that have begun.
  struct Sums {
    double left = 0;  // bytes that are summed after the pass
    int last = -1;
  };

  bool reduces(int stage, int index) const {
    return ends_step(index) && replicas(stage) > 1 && !job_.round_robin;
  }

  // Computes these parts, and sums the gradients of each beside the next.
  Sums emit_parts(int stage, int index, std::vector<BackwardPart> parts) {
    Items& work = work_[stage][index];
    const int device = device_of(stage, index);
    Sums sums;
    if (reduces(stage, index) && stage + 1 == stages_ && head_.gradient_bytes > 0) {
      parts.insert(parts.begin(), {0, head_.gradient_bytes});
    }
    for (const BackwardPart& part : parts) {
      const int id =
          add(fmt::format("B{}.{}", stage, index), "backward", compute_lane(device), part.seconds);
      if (work.first_backward < 0) work.first_backward = id;
      follow(id, work.last_backward);
      work.last_backward = id;
      if (!reduces(stage, index)) continue;
      const double beside = part.gradient_bytes * inputs_.software.overlap;
      sums.left += part.gradient_bytes - beside;
      sums.last = emit_reduce(stage, index, beside, lane_of(device, "collectives", true));
      follow(sums.last, id);
    }
    return sums;
  }

  void emit_gradient(int stage, int index) {
    Items& work = work_[stage][index];
    work.last_input = work.last_backward;
    if (stage == 0) return;
    const double bytes = cost(stage - 1).boundary_bytes;
    work.gradient = emit_message(stage, stage - 1, index, bytes, "gradients");
  }

  // What was not summed beside computing.
  void emit_rest(int stage, int index, Sums sums) {
    if (!reduces(stage, index)) return;
    const Items& work = work_[stage][index];
    const int device = device_of(stage, index);
    const bool stale = job_.schedule == parallel::ScheduleKind::ssp;
    if (stale) {  // other micro-batches go on beside part of what is left
      const double beside = sums.left * inputs_.software.stale_overlap;
      sums.left -= beside;
      sums.last = emit_reduce(stage, index, beside, lane_of(device, "collectives", true));
      follow(sums.last, work.last_backward);
    }
    const int rest = emit_reduce(stage, index, sums.left, compute_lane(device));
    follow(rest, work.last_backward);
    if (stale) {
      item(rest).links.clear();  // its turn on the links is counted with the other part
    } else {
      follow(rest, sums.last);
    }
    collectives_[{stage, index / job_.micro_batches}] = {rest, sums.last};
  }

  void emit_head_of(int stage, int index) {
    if (stage + 1 < stages_) return;
    emit_head(work_[stage][index], compute_lane(device_of(stage, index)), index);
  }

  void emit_backward(int stage, int index) {
    emit_head_of(stage, index);
    const StageCost& own = cost(stage);
    std::vector<BackwardPart> parts = own.backward;
    if (!reduces(stage, index)) parts = {{own.backward_seconds(), 0}};
    const Sums sums = emit_parts(stage, index, std::move(parts));
    Items& work = work_[stage][index];
    work.last_backward = emit_exchanges(stage, compute_lane(device_of(stage, index)),
                                        work.last_backward, own.backward_exchanges);
    emit_gradient(stage, index);
    emit_rest(stage, index, sums);
  }

  void emit_backward_input(int stage, int index) {
    emit_head_of(stage, index);
    Items& work = work_[stage][index];
    const StageCost& own = cost(stage);
    work.last_backward =
        add(fmt::format("B{}.{}", stage, index), "backward", compute_lane(device_of(stage, index)),
            own.backward_seconds() - own.weight_seconds());
    if (work.first_backward < 0) work.first_backward = work.last_backward;
    emit_gradient(stage, index);
  }

  void emit_backward_weights(int stage, int index) {
    const StageCost& own = cost(stage);
    std::vector<BackwardPart> parts = {{own.weight_seconds(), 0}};
    if (reduces(stage, index)) {
      parts = own.backward;
      for (BackwardPart& part : parts) part.seconds = part.weight_seconds;
    }
    emit_rest(stage, index, emit_parts(stage, index, std::move(parts)));
  }

  // Gather the embeddings, compute the classifier forward and backward, return their gradients.
  void emit_head(Items& work, int lane, int index) {
    if (job_.head.parallel == PlannedHead::Parallel::none) return;
    const std::vector<int>& devices = job_.stages.back().devices;
    const int members = static_cast<int>(devices.size());
    const LinkPath& links = ring(stages_ - 1);
    const double efficiency = inputs_.software.collective_efficiency;
    const auto exchange = [&](const char* name, Collective kind) {
      const int id = add(name, "collective", lane, 0);
      if (head_.gather_bytes > 0) {
        route_collective(item(id), links, kind, members, head_.gather_bytes, efficiency);
      }
      return id;
    };
    work.first_backward = exchange("embeddings", Collective::all_gather);
    add(fmt::format("head {}", index), "forward", lane, head_.compute);
    exchange("gradients of embeddings", Collective::reduce_scatter);
  }

  void emit_update(int stage, int replica, int step) {
    if (!job_.round_robin) {
      const int id = add(fmt::format("U{}.{}", stage, step), "update",
                         compute_lane(job_.stages[stage].devices.front()), cost(stage).update);
      const bool shared = cost(stage).gather_bytes > 0;
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
    const int id = add(fmt::format("U{}.{}", stage, step), "update", lane, cost(stage).update);
    updates_[stage][step].push_back(id);
  }

  // Dependencies between stages, and those that bound staleness.
  void connect() {
    for (int stage = 0; stage < stages_; ++stage) {
      for (size_t i = 0; i < work_[stage].size(); ++i) {
        const Items& work = work_[stage][i];
        follow(work.first_backward, work.forward);
        follow(work.activation, work.forward);
        follow(work.gradient, work.last_input);
        if (stage > 0) {
          const Items& before = work_[stage - 1][i];
          follow(work.first_forward, before.activation >= 0 ? before.activation : before.forward);
          follow(before.first_backward, work.gradient >= 0 ? work.gradient : work.last_input);
        }
        if (job_.schedule == parallel::ScheduleKind::ssp)
          bound_staleness(stage, static_cast<int>(i));
      }
      if (job_.round_robin) connect_rounds(stage);
    }
  }

  void bound_staleness(int stage, int index) {
    const int unseen = index / job_.micro_batches - in_flight(job_, stage);
    if (unseen < 0) return;
    for (const int id : updates_[stage][unseen]) follow(work_[stage][index].first_forward, id);
  }

  // One sum of gradients for each round of the replicas, before their updates.
  void connect_rounds(int stage) {
    const int rows = replicas(stage);
    for (int round = 0; round * rows < steps_; ++round) {
      const int sum = add(fmt::format("sum of gradients {}.{}", stage, round), "collective", -1, 0);
      if (rows > 1) {
        route_collective(item(sum), ring(stage), Collective::all_reduce, rows,
                         cost(stage).gradient_bytes(), inputs_.software.collective_efficiency);
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
  const HeadCost head_;
  int steps_ = 0;
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

}  // namespace millrace::planner
