#include "parallel/simulation.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "base/error.h"
#include "parallel/machine.h"

namespace millrace::parallel {

std::vector<Channel> channels_between(const Schedule& schedule, int64_t slots,
                                      const std::vector<std::pair<int, int>>& skips) {
  std::vector<Channel> channels;
  for (int stage = 0; stage + 1 < schedule.stages; ++stage) {
    channels.push_back({stage, stage + 1, slots});
    channels.push_back({stage + 1, stage, slots});
  }
  for (const auto& [from, to] : skips) {
    int64_t rows = 0;
    for (int stage = from; stage < to; ++stage) rows += schedule.replicas_of(stage);
    channels.push_back({from, to, rows});
    channels.push_back({to, from, rows});
  }
  return channels;
}

double Simulation::bubble_of_total() const {
  const double all = seconds * static_cast<double>(busy.size());
  return all > 0 ? 1 - std::accumulate(busy.begin(), busy.end(), 0.0) / all : 0;
}

double Simulation::bubble_of_ideal() const {
  const double work = std::accumulate(busy.begin(), busy.end(), 0.0);
  return work > 0 ? (seconds * static_cast<double>(busy.size()) - work) / work : 0;
}

Simulation simulate(const Schedule& schedule, const std::vector<Channel>& channels,
                    const Costs& costs) {
  Machine machine(schedule, channels, costs);
  machine.run(Machine::Preference::backward);
  if (!machine.finished()) fail_input("{}", machine.describe_stuck());
  return machine.take();
}

std::vector<RowTask> interleave(const Schedule& schedule, const std::vector<int>& rows,
                                const std::vector<Channel>& channels, const Costs& costs) {
  if (rows.size() == 1) {
    std::vector<RowTask> own;
    for (const Task& task : schedule.rows.at(static_cast<size_t>(rows[0])).tasks) {
      own.push_back({rows[0], task});
    }
    return own;
  }
  if (!schedule.orders.empty()) {
    return schedule.orders[static_cast<size_t>(rows.front()) % schedule.orders.size()];
  }
  const Simulation simulation = simulate(schedule, channels, costs);
  std::vector<RowTask> merged;
  for (const auto& [row, position] : simulation.order) {
    if (std::find(rows.begin(), rows.end(), row) == rows.end()) continue;
    merged.push_back(
        {row, simulation.rows[static_cast<size_t>(row)][static_cast<size_t>(position)].task});
  }
  return merged;
}

}  // namespace millrace::parallel
