#include "simulate/job_simulation.h"

#include <algorithm>
#include <map>

#include "base/median.h"
#include "simulate/items/collectives.h"
#include "simulate/items/messages.h"
#include "simulate/items/task_order.h"

namespace millrace::simulate {
namespace {

using Kind = CostedStep::Kind;

constexpr const char* kPhaseNames[] = {"forward", "backward", "update"};

// A task of a stage is one thing in a trace, also where it updates weights on the way.
std::string_view category_in_trace(parallel::Work work) {
  return work == parallel::Work::forward  ? "forward"
         : work == parallel::Work::update ? "update"
                                          : "backward";
}

std::string_view name_in_trace(parallel::Work work) {
  return work == parallel::Work::backward_input     ? "backward to inputs"
         : work == parallel::Work::backward_weights ? "backward to weights"
                                                    : parallel::name_of(work);
}

// Writes the items of one job; used once.
class JobSimulationBuilder {
 public:
  explicit JobSimulationBuilder(const SimulatedJob& job)
      : job_(job), writer_(job), messages_(writer_), collectives_(writer_) {}

  JobSimulation build() {
    take_persistent_memory();
    if (!job_.schedule) {
      for (int64_t step = 0; step < job_.steps; ++step) run_whole(step);
    } else if (job_.steady || !parallel::is_synchronous(job_.schedule(1).kind)) {
      run_segment(job_.schedule(job_.steps), 0);
    } else {
      const parallel::Schedule one = job_.schedule(1);
      for (int64_t step = 0; step < job_.steps; ++step) run_segment(one, step);
    }
    return writer_.take();
  }

 private:
  // The first and the last of some items of a device's own thread; -1: there are none.
  struct Span {
    int first = -1, last = -1;
  };

  const SimulatedWorkers& workers() const { return writer_.workers(); }
  const CostedProgram& program(int worker) const { return *workers()[worker].program; }

  void take_persistent_memory() {
    for (int worker = 0; worker < workers().count(); ++worker) {
      if (program(worker).persistent_bytes <= 0) continue;
      const int id = writer_.add_own("arena", "data", worker, 0, 0, -1);
      writer_.hide(id);
      writer_.item(id).memory.push_back(
          {workers()[worker].device, program(worker).persistent_bytes, false});
    }
  }

  // Runs the steps of a task, or of a whole program, on one device.
  Span run_steps(const CostedSteps& steps, const parallel::Task* task, int worker) {
    const int64_t micro_batch = task != nullptr ? task->micro_batch : 0;
    Span span;
    const auto add_behind = [&](int id) {
      if (writer_.is_free()) writer_.follow(id, span.last);
      if (span.first < 0) span.first = id;
      span.last = id;
    };
    for (const CostedStep& step : steps) {
      const std::string_view phase = kPhaseNames[static_cast<size_t>(step.phase)];
      switch (step.kind) {
        case Kind::compute:
          add_behind(
              writer_.add_own(std::string(task != nullptr ? name_in_trace(task->work) : phase),
                              std::string(task != nullptr ? category_in_trace(task->work) : phase),
                              worker, step.seconds, step.busy_seconds, micro_batch));
          break;
        case Kind::wait:
          writer_.wait_for(worker, done_of_ticket_.at({worker, step.ticket}));
          break;
        case Kind::post:
          done_of_ticket_[{worker, step.ticket}] = collectives_.join(worker, step, micro_batch);
          break;
        case Kind::together: {
          const int before = writer_.last(worker);
          const int done = collectives_.join(worker, step, micro_batch);
          if (writer_.last(worker) != before) {
            add_behind(done);
          } else {
            writer_.wait_for(worker, done);
          }
          break;
        }
        case Kind::send:
          send(worker, *task, span.last);
          break;
      }
    }
    if (writer_.waits(worker))
      add_behind(writer_.add_own("wait", "update", worker, 0, 0, micro_batch));
    return span;
  }

  void run_whole(int64_t step) {
    for (int worker = 0; worker < workers().count(); ++worker) {
      // A segment of its own, as in a run.
      run_steps(program(worker).tasks[parallel::Work::forward], nullptr, worker);
    }
    writer_.join_devices(step);
  }

  void run_segment(const parallel::Schedule& schedule, int64_t first_step) {
    messages_.start_segment();
    segment_ = first_step;
    const auto orders = task_orders(job_, workers(), schedule, writer_.is_free());
    size_t longest = 0;
    for (const auto& order : orders) longest = std::max(longest, order.size());
    // Place by place, so that devices that run what is ready prefer the earlier micro-batch.
    for (size_t place = 0; place < longest; ++place) {
      for (const auto& order : orders) {
        if (place < order.size()) run_task(schedule, order[place].worker, order[place].task);
      }
    }
    messages_.connect();
    if (!job_.steady) return writer_.join_devices(first_step + schedule.steps - 1);
    for (int stage = 0; stage < schedule.stages; ++stage) {
      for (int64_t step = 0; step < schedule.steps; ++step) {
        const int64_t last = (step + 1) * schedule.micro_batches - 1;
        for (const int id : updates_[{stage, schedule.update_of(stage, last)}]) {
          writer_.end_step(step, id);
        }
      }
    }
  }

  static bool goes_forward(parallel::Work work) { return work == parallel::Work::forward; }
  static bool goes_backward(parallel::Work work) {
    return work == parallel::Work::backward || work == parallel::Work::backward_input;
  }

  void send(int worker, const parallel::Task& task, int made) {
    messages_.send(worker, goes_backward(task.work), task.micro_batch, made);
  }

  void run_task(const parallel::Schedule& schedule, int worker, const parallel::Task& task) {
    const bool exchanges = goes_forward(task.work) || goes_backward(task.work);
    if (exchanges) messages_.receive(worker, goes_backward(task.work), task.micro_batch);
    const CostedProgram& costs = program(worker);
    const bool closes =
        schedule.round_robin || (task.micro_batch + 1) % schedule.micro_batches == 0;
    const bool differs = closes && !costs.closing[task.work].empty();
    const CostedSteps& steps = (differs ? costs.closing : costs.tasks)[task.work];
    const Span span = run_steps(steps, &task, worker);
    messages_.arrive(span.first);
    if (span.first >= 0) count_memory(worker, task.work, span);
    const bool sent = std::any_of(steps.begin(), steps.end(),
                                  [](const CostedStep& step) { return step.kind == Kind::send; });
    if (exchanges && !sent) send(worker, task, span.last);
    if (job_.steady) {
      order_freely(schedule, worker, task, span);
    } else if (goes_forward(task.work) && workers()[worker].stage + 1 == schedule.stages) {
      writer_.end_step(segment_ + task.micro_batch / schedule.micro_batches, span.last);
    }
  }

  // What follows what where the order of a device does not say it: a micro-batch's passes, its
  // update, and forwards that may be so many updates ahead.
  void order_freely(const parallel::Schedule& schedule, int worker, const parallel::Task& task,
                    Span span) {
    const int stage = workers()[worker].stage;
    const int64_t update = schedule.update_of(stage, task.micro_batch);
    const bool updates = task.work == parallel::Work::update;
    if (updates) updates_[{stage, update}].push_back(span.last);
    if (!writer_.is_free()) return;
    int& before = ended_.try_emplace({worker, task.micro_batch}, -1).first->second;
    if (goes_forward(task.work)) {
      const int row = schedule.row_of(stage, task.micro_batch);
      const auto seen =
          updates_.find({stage, update - schedule.rows[static_cast<size_t>(row)].in_flight});
      if (seen != updates_.end()) {
        for (const int id : seen->second) writer_.follow(span.first, id);
      }
    } else {
      writer_.follow(span.first, before);
    }
    before = span.last;
  }

  void count_memory(int worker, parallel::Work work, Span span) {
    const int device = workers()[worker].device;
    const CostedProgram& costed = program(worker);
    if (costed.scratch_bytes + costed.saved_bytes <= 0) return;
    std::vector<MemoryChange>& at_start = writer_.item(span.first).memory;
    at_start.push_back({device, costed.scratch_bytes, false});
    if (goes_forward(work)) at_start.push_back({device, costed.saved_bytes, false});
    std::vector<MemoryChange>& at_end = writer_.item(span.last).memory;
    at_end.push_back({device, -costed.scratch_bytes, true});
    if (work == parallel::Work::backward || work == parallel::Work::backward_weights) {
      at_end.push_back({device, -costed.saved_bytes, true});
    }
  }

  const SimulatedJob& job_;
  ItemWriter writer_;
  SimulatedMessages messages_;
  SimulatedCollectives collectives_;
  int64_t segment_ = 0;  // the first step of what is being written
  std::map<std::pair<int, int64_t>, int> done_of_ticket_;        // by worker and ticket
  std::map<std::pair<int, int64_t>, std::vector<int>> updates_;  // by stage and number
  std::map<std::pair<int, int64_t>, int> ended_;  // the last task of a worker's micro-batch
};

}  // namespace

JobSimulation build_simulation(const SimulatedJob& job) {
  return JobSimulationBuilder(job).build();
}

std::vector<Message> messages_of(
    const std::vector<parallel::Route>& routes,
    const std::function<double(const parallel::Route& route, bool sends)>& copy_seconds) {
  std::vector<Message> messages;
  for (const parallel::Route& route : routes) {
    messages.push_back({.name = route.name(),
                        .from_stage = route.from_stage(),
                        .from_member = route.from_member,
                        .to_stage = route.to_stage(),
                        .to_member = route.to_member,
                        .gradients = route.gradient,
                        .from_turn = route.from_turn,
                        .to_turn = route.to_turn,
                        .bytes = static_cast<double>(route.bytes),
                        .sending = copy_seconds(route, true),
                        .receiving = copy_seconds(route, false),
                        .slots = route.slots});
  }
  return messages;
}

std::vector<double> step_ends_of(const JobSimulation& simulation, const SimulationResult& result) {
  std::vector<double> ends;
  for (const std::vector<int>& items : simulation.step_ends) {
    ends.push_back(0);
    for (const int id : items)
      ends.back() = std::max(ends.back(), result.end[static_cast<size_t>(id)]);
  }
  return ends;
}

double bubble_of(const JobSimulation& simulation, const SimulationResult& result) {
  double idle = 0, devices = 0;
  for (size_t i = 0; i < simulation.compute_lanes.size(); ++i) {
    idle += simulation.standing_for[i] * result.idle_share(simulation.compute_lanes[i]);
    devices += simulation.standing_for[i];
  }
  return devices > 0 ? idle / devices : 0;
}

SimulatedSteps steps_of(const JobSimulation& simulation, const SimulationResult& result) {
  SimulatedSteps steps;
  double before = 0;
  for (const double end : step_ends_of(simulation, result)) {
    steps.seconds.push_back(std::max(0.0, end - before));
    before = std::max(before, end);
  }
  std::vector<double> later = steps.seconds;
  if (later.size() > 1) later.erase(later.begin());
  steps.median = median(later);
  steps.bubble = bubble_of(simulation, result);
  return steps;
}

}  // namespace millrace::simulate
