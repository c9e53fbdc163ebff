#include "profile/simulation/task_order.h"

#include <algorithm>
#include <optional>

#include "parallel/simulation.h"

namespace millrace::profile {
namespace {

struct WorkerRow {
  int row = 0;  // of the schedule
  int worker = 0;
};

double sum_of(const CostedSteps& steps) {
  double sum = 0;
  for (const CostedStep& step : steps) sum += step.seconds;
  return sum;
}

std::map<int, std::vector<WorkerRow>> rows_by_device(const SimulatedWorkers& workers,
                                                     const parallel::Schedule& schedule) {
  std::map<int, std::vector<WorkerRow>> rows;
  for (int number = 0; number < workers.count(); ++number) {
    const SimulatedWorker& worker = workers[number];
    const int row = schedule.row_of(worker.stage, schedule.round_robin ? worker.member : 0);
    rows[worker.device].push_back({row, number});
  }
  return rows;
}

// `free`: what devices choose where the schedule leaves it to them.
std::vector<parallel::RowTask> order_of(const std::vector<WorkerRow>& rows,
                                        const parallel::Schedule& schedule,
                                        const std::vector<parallel::Channel>& channels,
                                        const std::optional<parallel::Simulation>& free) {
  std::vector<int> numbers;
  for (const WorkerRow& entry : rows) numbers.push_back(entry.row);
  if (!free || rows.size() > 1) return parallel::interleave(schedule, numbers, channels);
  const int row = numbers[0];
  std::vector<parallel::RowTask> order;
  for (const parallel::SimulatedTask& task : free->rows[static_cast<size_t>(row)]) {
    order.push_back({row, task.task});
  }
  return order;
}

}  // namespace

const CostedSteps& steps_of_work(const CostedProgram& program, parallel::Work work) {
  switch (work) {
    case parallel::Work::forward:
      return program.forward;
    case parallel::Work::backward:
    case parallel::Work::backward_input:
      return program.backward;
    case parallel::Work::backward_weights:
      return program.backward_weights;
    case parallel::Work::update:
      return program.update;
  }
  return program.update;
}

std::map<int, std::vector<WorkerTask>> tasks_by_device(const SimulatedJob& job,
                                                       const SimulatedWorkers& workers,
                                                       const parallel::Schedule& schedule) {
  parallel::Costs costs;
  costs.task = [&](int stage, const parallel::Task& task) {
    return sum_of(steps_of_work(*workers[workers.number_of(stage, 0)].program, task.work));
  };
  std::optional<parallel::Simulation> free;
  if (!schedule.fixed_order) free = parallel::simulate(schedule, job.routes.channels, costs);
  std::map<int, std::vector<WorkerTask>> tasks;
  for (const auto& [device, rows] : rows_by_device(workers, schedule)) {
    for (const parallel::RowTask& next : order_of(rows, schedule, job.routes.channels, free)) {
      const auto entry = std::find_if(rows.begin(), rows.end(),
                                      [&](const auto& one) { return one.row == next.row; });
      tasks[device].push_back({entry->worker, next.task});
    }
  }
  return tasks;
}

}  // namespace millrace::profile
