#include "planner/cost/planned_simulation.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "planner/cost/boundary.h"

namespace millrace::planner {
namespace {

using simulate::Collective;
using simulate::CostedStep;
using simulate::CostedSteps;
using Kind = CostedStep::Kind;
using parallel::Work;

constexpr int kSteps = 12;    // besides those in which the pipeline fills and drains
constexpr int64_t kSums = 0;  // ticket of the gradients that were summed last

int replicas_of(const PlannedStage& stage) { return static_cast<int>(stage.devices.size()); }

// Steps after which the pace repeats: replicas that take turns have all had theirs.
int period_of(const PlannedJob& job) {
  int most = 1;
  for (const PlannedStage& stage : job.stages) {
    if (job.round_robin) most = std::max(most, replicas_of(stage));
  }
  return most;
}

CostedStep computing(double seconds) { return {.seconds = seconds, .busy_seconds = seconds}; }

CostedStep exchanging(Kind kind, Collective collective, double bytes) {
  return {.kind = kind, .bytes = bytes, .ticket = kSums, .collective = collective};
}

void add_exchanges(CostedSteps& steps, const std::vector<StageExchange>& exchanges) {
  for (const StageExchange& one : exchanges) {
    steps.push_back(exchanging(Kind::together, one.collective, one.bytes));
  }
}

// What a device of one stage does in its tasks.
class StageProgram {
 public:
  StageProgram(const CostContext& context, const PlannedJob& job, const PlannedStage& stage,
               const StageCost& cost)
      : job_(job), software_(context.software), replicas_(replicas_of(stage)), cost_(cost) {
    if (&stage == &job.stages.back() && job.head.parallel != PlannedHead::Parallel::none) {
      head_ = head_cost(context, job);
    }
  }

  simulate::CostedProgram make() const {
    simulate::CostedProgram program;
    CostedSteps& forward = program.tasks[Work::forward];
    forward.push_back(computing(cost_.forward));
    add_exchanges(forward, cost_.forward_exchanges);
    const bool sums = replicas_ > 1 && !job_.round_robin;
    if (job_.schedule == parallel::ScheduleKind::zero_bubble) {
      CostedSteps& inputs = program.tasks[Work::backward_input];
      inputs = head_steps();
      inputs.push_back(computing(cost_.backward_seconds() - cost_.weight_seconds()));
      program.tasks[Work::backward_weights] = {computing(cost_.weight_seconds())};
      if (sums) {
        CostedSteps& last = program.closing[Work::backward_weights];
        const double left = add_parts(last, true);
        add_rest(last, left);
      }
    } else {
      CostedSteps& backward = program.tasks[Work::backward];
      backward = head_steps();
      backward.push_back(computing(cost_.backward_seconds()));
      add_exchanges(backward, cost_.backward_exchanges);
      if (sums) {
        CostedSteps& last = program.closing[Work::backward];
        last = head_steps();
        const double left = add_parts(last, false);
        add_exchanges(last, cost_.backward_exchanges);
        last.push_back({.kind = Kind::send});
        add_rest(last, left);
      }
    }
    program.tasks[Work::update] = update_steps(sums);
    return program;
  }

 private:
  // Gather the embeddings, compute the classifier forward and backward, return their gradients.
  CostedSteps head_steps() const {
    if (!head_) return {};
    return {exchanging(Kind::together, Collective::all_gather, head_->gather_bytes),
            computing(head_->compute),
            exchanging(Kind::together, Collective::reduce_scatter, head_->gather_bytes)};
  }

  // Replicas that share the update sum only their own part.
  CostedStep sum_of(Kind kind, double bytes) const {
    return exchanging(
        kind, cost_.gather_bytes > 0 ? Collective::reduce_scatter : Collective::all_reduce, bytes);
  }

  // Computes the parts of the backward pass, and sums the gradients of each beside the next;
  // returns the bytes that are summed after the pass.
  double add_parts(CostedSteps& steps, bool weights_only) const {
    double left = 0;
    const auto add = [&](double seconds, double bytes) {
      const double beside = bytes * software_.overlap;
      left += bytes - beside;
      steps.push_back(computing(seconds));
      steps.push_back(sum_of(Kind::post, beside));
    };
    if (head_ && head_->gradient_bytes > 0) add(0, head_->gradient_bytes);
    for (const BackwardPart& part : cost_.backward) {
      add(weights_only ? part.weight_seconds : part.seconds, part.gradient_bytes);
    }
    return left;
  }

  // What was not summed beside computing. With bounded staleness other micro-batches go on beside
  // part of it, whose turn on the links counts for both.
  void add_rest(CostedSteps& steps, double left) const {
    const bool stale = job_.schedule == parallel::ScheduleKind::ssp;
    if (stale) {
      const double beside = left * software_.stale_overlap;
      left -= beside;
      steps.push_back(sum_of(Kind::post, beside));
    } else {
      steps.push_back({.kind = Kind::wait, .ticket = kSums});
    }
    steps.push_back(sum_of(Kind::together, left));
    steps.back().on_links = !stale;
  }

  CostedSteps update_steps(bool sums) const {
    CostedSteps steps;
    if (sums) steps.push_back({.kind = Kind::wait, .ticket = kSums});
    if (job_.round_robin && replicas_ > 1) {
      steps.push_back(exchanging(Kind::together, Collective::all_reduce, cost_.gradient_bytes()));
    }
    steps.push_back(computing(cost_.update));
    if (cost_.gather_bytes > 0) {
      steps.push_back(exchanging(Kind::together, Collective::all_gather, cost_.gather_bytes));
    }
    return steps;
  }

  const PlannedJob& job_;
  const SoftwareConstants& software_;
  const int replicas_;
  const StageCost& cost_;
  std::optional<HeadCost> head_;
};

// Everything that neighbouring stages send each other.
class StageMessages {
 public:
  StageMessages(const CostContext& context, const PlannedJob& job, const simulate::Fabric& fabric,
                const std::vector<StageCost>& costs)
      : context_(context), job_(job), fabric_(fabric), costs_(costs) {}

  std::vector<simulate::Message> make() {
    for (int stage = 0; stage + 1 < static_cast<int>(job_.stages.size()); ++stage) {
      add(stage, stage + 1, costs_[static_cast<size_t>(stage)].boundary_bytes);
      add(stage + 1, stage, costs_[static_cast<size_t>(stage)].boundary_bytes);
    }
    return std::move(messages_);
  }

 private:
  void add(int from, int to, double bytes) {
    const PlannedStage& source = job_.stages[static_cast<size_t>(from)];
    const PlannedStage& target = job_.stages[static_cast<size_t>(to)];
    const int senders = job_.round_robin ? replicas_of(source) : 1;
    const int receivers = job_.round_robin ? replicas_of(target) : 1;
    for (int sender = 0; sender < senders; ++sender) {
      for (int receiver = 0; receiver < receivers; ++receiver) {
        if ((sender - receiver) % std::gcd(senders, receivers) != 0) continue;
        simulate::Message message = {.name = to > from ? "activations" : "gradients",
                                     .from_stage = from,
                                     .from_member = sender,
                                     .to_stage = to,
                                     .to_member = receiver,
                                     .gradients = to < from,
                                     .from_turn = {senders, sender},
                                     .to_turn = {receivers, receiver}};
        set_cost(message, source, target, bytes);
        messages_.push_back(std::move(message));
      }
    }
  }

  void set_cost(simulate::Message& message, const PlannedStage& from, const PlannedStage& to,
                double bytes) const {
    const SoftwareConstants& software = context_.software;
    const int source = from.devices[static_cast<size_t>(message.from_member)];
    const int target = to.devices[static_cast<size_t>(message.to_member)];
    if (source == target) {
      if (software.boundary_rate <= 0) return;
      message.sending = bytes / replicas_of(from) / software.boundary_rate;
    } else if (job_.round_robin) {
      message.bytes = bytes;
      message.rate = fabric_.between(source, target).rate * software.transfer_efficiency;
    } else {
      message.bytes = bytes / std::min(replicas_of(from), replicas_of(to));
      message.rate =
          message.bytes / (bytes * boundary_seconds(from, to, 1, context_.cluster, fabric_,
                                                    software.transfer_efficiency));
    }
  }

  const CostContext& context_;
  const PlannedJob& job_;
  const simulate::Fabric& fabric_;
  const std::vector<StageCost>& costs_;
  std::vector<simulate::Message> messages_;
};

}  // namespace

simulate::JobSimulation simulation_of(const CostContext& context, const PlannedJob& job,
                                      const simulate::Fabric& fabric,
                                      const std::vector<StageCost>& costs) {
  std::vector<simulate::CostedProgram> programs;
  for (size_t i = 0; i < job.stages.size(); ++i) {
    programs.push_back(StageProgram(context, job, job.stages[i], costs[i]).make());
  }
  simulate::SimulatedJob simulated;
  simulated.fabric = &fabric;
  simulated.steady = true;
  for (size_t i = 0; i < job.stages.size(); ++i) {
    const std::vector<int>& devices = job.stages[i].devices;
    simulated.devices.push_back(devices);
    simulated.costs.programs.emplace_back(job.round_robin ? devices.size() : 1, &programs[i]);
  }
  simulated.costs.messages = StageMessages(context, job, fabric, costs).make();
  simulated.costs.collective_efficiency = context.software.collective_efficiency;
  simulated.schedule = [&](int64_t steps) { return schedule_of(job, steps); };
  const auto under_way = static_cast<int>(whole_schedule_of(job).rows.front().in_flight);
  const int filling = 2 * (under_way / std::max(1, job.micro_batches) + 1);
  simulated.steps = period_of(job) * (kSteps + filling);
  return simulate::build_simulation(simulated);
}

double pace_of(const PlannedJob& job, const simulate::JobSimulation& simulation,
               const simulate::SimulationResult& result) {
  const std::vector<double> ends = simulate::step_ends_of(simulation, result);
  const int steps = static_cast<int>(ends.size());
  const int period = period_of(job);
  const int last = steps - 1 - steps / 4;
  // Lanes that run what is ready may fall into a rhythm of a few steps.
  const int rhythm = 4 * period;
  const int room = last - steps / 4;
  const int span = room >= rhythm ? room / rhythm * rhythm : std::min(last, period);
  const auto end_of = [&](int step) { return ends[static_cast<size_t>(step)]; };
  return span < 1 ? end_of(0) : (end_of(last) - end_of(last - span)) / span;
}

}  // namespace millrace::planner
