#include "simulate/items/task_order.h"

#include <algorithm>
#include <map>
#include <optional>

#include "parallel/simulation.h"

namespace millrace::simulate {
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

// By device, or each apart.
std::map<int, std::vector<WorkerRow>> rows_of(const SimulatedWorkers& workers,
                                              const parallel::Schedule& schedule, bool apart) {
  std::map<int, std::vector<WorkerRow>> rows;
  for (int number = 0; number < workers.count(); ++number) {
    const SimulatedWorker& worker = workers[number];
    const int row = schedule.row_of(worker.stage, schedule.round_robin ? worker.member : 0);
    rows[apart ? number : worker.device].push_back({row, number});
  }
  return rows;
}

std::vector<parallel::RowTask> row_order(const parallel::Simulation& ran, int row) {
  std::vector<parallel::RowTask> order;
  for (const parallel::SimulatedTask& task : ran.rows[static_cast<size_t>(row)]) {
    order.push_back({row, task.task});
  }
  return order;
}

}  // namespace

std::vector<std::vector<WorkerTask>> task_orders(const SimulatedJob& job,
                                                 const SimulatedWorkers& workers,
                                                 const parallel::Schedule& schedule, bool free) {
  const std::vector<parallel::Channel> channels =
      job.channels.empty() ? parallel::channels_between(schedule) : job.channels;
  // What devices choose where the schedule leaves it to them.
  std::optional<parallel::Simulation> chosen;
  if (!schedule.fixed_order && !free) {
    parallel::Costs costs;
    costs.task = [&](int stage, const parallel::Task& task) {
      return sum_of(workers[workers.number_of(stage, 0)].program->tasks[task.work]);
    };
    chosen = parallel::simulate(schedule, channels, costs);
  }
  std::vector<std::vector<WorkerTask>> orders;
  for (const auto& [place, rows] : rows_of(workers, schedule, free)) {
    std::vector<int> numbers;
    for (const WorkerRow& entry : rows) numbers.push_back(entry.row);
    orders.emplace_back();
    for (const parallel::RowTask& next : chosen&& rows.size() == 1
                                             ? row_order(*chosen, numbers[0])
                                             : parallel::interleave(schedule, numbers, channels)) {
      const auto entry = std::find_if(rows.begin(), rows.end(),
                                      [&](const auto& one) { return one.row == next.row; });
      orders.back().push_back({entry->worker, next.task});
    }
  }
  return orders;
}

}  // namespace millrace::simulate
