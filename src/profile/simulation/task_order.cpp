#include "profile/simulation/task_order.h"

#include <algorithm>
#include <optional>

#include "parallel/simulation.h"

namespace millrace {
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
                                                     const Schedule& schedule) {
  std::map<int, std::vector<WorkerRow>> rows;
  for (int number = 0; number < workers.count(); ++number) {
    const SimulatedWorker& worker = workers[number];
    const int row = schedule.row_of(worker.stage, schedule.round_robin ? worker.member : 0);
    rows[worker.device].push_back({row, number});
  }
  return rows;
}

// `free`: what devices choose where the schedule leaves it to them.
std::vector<RowTask> order_of(const std::vector<WorkerRow>& rows, const Schedule& schedule,
                              const std::vector<Channel>& channels,
                              const std::optional<Simulation>& free) {
  if (rows.size() > 1) {
    std::vector<int> numbers;
    for (const WorkerRow& entry : rows) numbers.push_back(entry.row);
    return interleave(schedule, numbers, channels);
  }
  const int row = rows[0].row;
  const auto index = static_cast<size_t>(row);
  std::vector<RowTask> order;
  if (free) {
    for (const SimulatedTask& task : free->rows[index]) order.push_back({row, task.task});
  } else {
    for (const Task& task : schedule.rows[index].tasks) order.push_back({row, task});
  }
  return order;
}

}  // namespace

const CostedSteps& steps_of_work(const CostedProgram& program, Work work) {
  switch (work) {
    case Work::forward:
      return program.forward;
    case Work::backward:
    case Work::backward_input:
      return program.backward;
    case Work::backward_weights:
      return program.backward_weights;
    case Work::update:
      return program.update;
  }
  return program.update;
}

std::map<int, std::vector<WorkerTask>> tasks_by_device(const SimulatedJob& job,
                                                       const SimulatedWorkers& workers,
                                                       const Schedule& schedule) {
  Costs costs;
  costs.task = [&](int stage, const Task& task) {
    return sum_of(steps_of_work(*workers[workers.number_of(stage, 0)].program, task.work));
  };
  std::optional<Simulation> free;
  if (!schedule.fixed_order) free = simulate(schedule, job.routes.channels, costs);
  std::map<int, std::vector<WorkerTask>> tasks;
  for (const auto& [device, rows] : rows_by_device(workers, schedule)) {
    for (const RowTask& next : order_of(rows, schedule, job.routes.channels, free)) {
      const auto entry = std::find_if(rows.begin(), rows.end(),
                                      [&](const auto& one) { return one.row == next.row; });
      tasks[device].push_back({entry->worker, next.task});
    }
  }
  return tasks;
}

}  // namespace millrace
