#include "profile/program_simulation.h"

#include <algorithm>
#include <map>
#include <optional>

#include "profile/simulation/collectives.h"
#include "profile/simulation/messages.h"
#include "profile/simulation/task_order.h"

namespace millrace::profile {
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
class ProgramSimulationBuilder {
 public:
  explicit ProgramSimulationBuilder(const SimulatedJob& job)
      : job_(job), writer_(job), messages_(writer_), collectives_(writer_) {}

  ProgramSimulation build() {
    take_persistent_memory();
    if (!job_.schedule) {
      for (int64_t step = 0; step < job_.steps; ++step) run_whole(step);
    } else {
      const parallel::Schedule one = job_.schedule(1);
      if (parallel::is_synchronous(one.kind)) {
        for (int64_t step = 0; step < job_.steps; ++step) run_segment(one, step);
      } else {
        run_segment(job_.schedule(job_.steps), 0);
      }
    }
    return writer_.take();
  }

 private:
  const SimulatedWorkers& workers() const { return writer_.workers(); }
  const CostedProgram& program(int worker) const { return *workers()[worker].program; }

  void take_persistent_memory() {
    for (int worker = 0; worker < workers().count(); ++worker) {
      const int id = writer_.add_own("arena", "data", worker, 0, 0, -1);
      writer_.hide(id);
      writer_.item(id).memory.push_back(
          {workers()[worker].device, program(worker).persistent_bytes, false});
    }
  }

  // Runs the steps of a task, or of a whole program, on one device; returns its last item.
  int run_steps(const CostedSteps& steps, std::optional<parallel::Work> task, int worker,
                int64_t micro_batch) {
    for (const CostedStep& step : steps) {
      const std::string_view phase = kPhaseNames[static_cast<size_t>(step.phase)];
      if (step.kind == Kind::compute) {
        writer_.add_own(std::string(task ? name_in_trace(*task) : phase),
                        std::string(task ? category_in_trace(*task) : phase), worker, step.seconds,
                        step.busy_seconds, micro_batch);
        continue;
      }
      if (step.kind == Kind::wait) {
        writer_.wait_for(worker, done_of_ticket_.at({worker, step.ticket}));
        continue;
      }
      const int done = collectives_.join(worker, step.collective, step.bytes);
      if (step.kind == Kind::together) writer_.wait_for(worker, done);
      if (step.kind == Kind::post) done_of_ticket_[{worker, step.ticket}] = done;
    }
    if (writer_.waits(worker)) writer_.add_own("wait", "update", worker, 0, 0, micro_batch);
    return writer_.last(worker);
  }

  void run_whole(int64_t step) {
    for (int worker = 0; worker < workers().count(); ++worker) {
      run_steps(program(worker).forward, {}, worker, 0);  // a segment of its own, as in a run
    }
    writer_.join_devices(step);
  }

  void run_segment(const parallel::Schedule& schedule, int64_t first_step) {
    messages_.start_segment();
    segment_ = first_step;
    for (const auto& [device, tasks] : tasks_by_device(job_, workers(), schedule)) {
      for (const WorkerTask& next : tasks) run_task(schedule, next.worker, next.task);
    }
    writer_.join_devices(first_step + schedule.steps - 1);
  }

  void run_task(const parallel::Schedule& schedule, int worker, const parallel::Task& task) {
    const bool forward = task.work == parallel::Work::forward;
    const bool backward =
        task.work == parallel::Work::backward || task.work == parallel::Work::backward_input;
    if (forward || backward) messages_.receive(worker, backward, task.micro_batch);
    const int before = writer_.count();
    const int last =
        run_steps(steps_of_work(program(worker), task.work), task.work, worker, task.micro_batch);
    if (writer_.count() > before) count_memory(worker, task.work, before, last);
    if (forward || backward) messages_.send(worker, backward, task.micro_batch);
    if (!forward || workers()[worker].stage + 1 != schedule.stages) return;
    writer_.end_step(segment_ + task.micro_batch / schedule.micro_batches, last);
  }

  // `first` may belong to another lane: the first of this device's own is what counts.
  void count_memory(int worker, parallel::Work work, int first, int last) {
    const int device = workers()[worker].device;
    const CostedProgram& costed = program(worker);
    while (writer_.item(first).lane != writer_.compute_lane(worker)) ++first;
    std::vector<planner::MemoryChange>& at_start = writer_.item(first).memory;
    at_start.push_back({device, costed.scratch_bytes, false});
    if (work == parallel::Work::forward) at_start.push_back({device, costed.saved_bytes, false});
    std::vector<planner::MemoryChange>& at_end = writer_.item(last).memory;
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
  std::map<std::pair<int, int64_t>, int> done_of_ticket_;  // by worker and ticket
};

}  // namespace

ProgramSimulation build_simulation(const SimulatedJob& job) {
  return ProgramSimulationBuilder(job).build();
}

SimulatedSteps steps_of(const ProgramSimulation& simulation,
                        const planner::SimulationResult& result) {
  SimulatedSteps steps;
  double before = 0;
  for (const std::vector<int>& ends : simulation.step_ends) {
    double end = before;
    for (const int id : ends) end = std::max(end, result.end[static_cast<size_t>(id)]);
    steps.seconds.push_back(end - before);
    before = end;
  }
  std::vector<double> sorted = steps.seconds;
  if (sorted.size() > 1) sorted.erase(sorted.begin());
  std::sort(sorted.begin(), sorted.end());
  if (!sorted.empty()) {
    steps.median = (sorted[(sorted.size() - 1) / 2] + sorted[sorted.size() / 2]) / 2;
  }
  double idle = 0;
  for (const int lane : simulation.compute_lanes) idle += result.idle_share(lane);
  steps.bubble = idle / static_cast<double>(std::max<size_t>(1, simulation.compute_lanes.size()));
  return steps;
}

}  // namespace millrace::profile
