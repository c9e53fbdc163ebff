#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "parallel/simulation.h"

namespace millrace::parallel {
namespace {

char letter_of(Work work) {
  switch (work) {
    case Work::forward:
      return 'F';
    case Work::backward_weights:
      return 'W';
    default:
      return 'B';
  }
}

std::string label_of(const Schedule& schedule, const Task& task) {
  std::string label = fmt::format("{}{}", letter_of(task.work), task.micro_batch);
  if (!is_synchronous(schedule.kind)) label += fmt::format(".{}", task.version);
  return label;
}

// Cells by unit of time; work that takes two units has a dash in the second.
std::vector<std::string> cells_of(const Schedule& schedule, const std::vector<SimulatedTask>& ran,
                                  size_t columns) {
  std::vector<std::string> cells(columns, ".");
  size_t last = 0;
  for (const SimulatedTask& entry : ran) {
    if (entry.task.work == Work::update) {
      cells[last] += '*';
      continue;
    }
    const auto begin = static_cast<size_t>(std::lround(entry.begin));
    last = static_cast<size_t>(std::lround(entry.end)) - 1;
    cells[begin] = label_of(schedule, entry.task);
    for (size_t column = begin + 1; column <= last; ++column) cells[column].assign(1, '-');
  }
  return cells;
}

std::string line_of(const Schedule& schedule, const Row& row, const std::vector<std::string>& cells,
                    size_t width) {
  std::string line = fmt::format("stage {}", row.stage);
  if (schedule.replicas_of(row.stage) > 1) line += fmt::format("/{}", row.replica);
  line = fmt::format("{:<11}", line);
  for (const std::string& cell : cells) line += fmt::format(" {:<{}}", cell, width);
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

}  // namespace

std::string to_text(const Schedule& schedule) {
  const int64_t roomy = schedule.total_micro_batches() + 1;
  const Simulation simulation = simulate(schedule, channels_between(schedule, roomy));
  const auto columns = static_cast<size_t>(std::lround(simulation.seconds));
  std::vector<std::vector<std::string>> grid;
  size_t width = 1;
  for (const auto& ran : simulation.rows) {
    grid.push_back(cells_of(schedule, ran, columns));
    for (const std::string& cell : grid.back()) width = std::max(width, cell.size());
  }
  std::string text =
      fmt::format("{}: {} stages, {} micro-batches a step, {} steps{}\n", name_of(schedule.kind),
                  schedule.stages, schedule.micro_batches, schedule.steps,
                  schedule.fixed_order ? "" : ", one of the orders that may come about");
  for (size_t row = 0; row < grid.size(); ++row) {
    text += line_of(schedule, schedule.rows[row], grid[row], width);
  }
  for (const Row& row : schedule.rows) {
    text += fmt::format("stage {}{}: {} in flight, {} version{} of the weights\n", row.stage,
                        schedule.replicas_of(row.stage) > 1 ? fmt::format("/{}", row.replica) : "",
                        row.in_flight, row.versions, row.versions == 1 ? "" : "s");
  }
  text += schedule.kind == ScheduleKind::zero_bubble
              ? "F forward, B backward to the inputs, W to the weights, * then update"
              : "F forward, B backward, * then update";
  if (!is_synchronous(schedule.kind)) text += "; F5.3: micro-batch 5 with version 3";
  return text + fmt::format("; idle {:.1f} % of the time, {:.1f} % of the work.\n",
                            100 * simulation.bubble_of_total(), 100 * simulation.bubble_of_ideal());
}

}  // namespace millrace::parallel
