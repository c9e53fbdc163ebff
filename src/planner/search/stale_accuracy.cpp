#include "planner/search/stale_accuracy.h"

#include <fmt/format.h>

#include <cstdlib>

#include "planner/data/table.h"

namespace millrace::planner {

std::optional<StaleAccuracy> stale_accuracy(parallel::ScheduleKind kind, int stages) {
  if (parallel::is_synchronous(kind) || stages < 2) return std::nullopt;
  std::optional<StaleAccuracy> found;
  double one_device = 0;
  for (const TableRecord& record : embedded_table("stale_accuracy.csv")) {
    const double measured = std::stod(record.at("correct_percent"));
    if (record.at("schedule") == "one device") one_device = measured;
    if (record.at("schedule") != parallel::name_of(kind)) continue;
    const int its_stages = record.at("stages").empty() ? 0 : std::stoi(record.at("stages"));
    if (found && std::abs(found->stages - stages) <= std::abs(its_stages - stages)) continue;
    found = StaleAccuracy{one_device, measured, its_stages};
  }
  return found;
}

std::string stale_sentence(parallel::ScheduleKind kind, int stages) {
  const std::optional<StaleAccuracy> accuracy = stale_accuracy(kind, stages);
  if (!accuracy) return {};
  return fmt::format(
      "{} trains on weights a few updates old: one epoch of Fashion-MNIST got {:.1f} % right{} "
      "where one device got {:.1f} %.",
      parallel::name_of(kind), accuracy->measured,
      accuracy->stages > 0 ? fmt::format(" with {} stages", accuracy->stages) : "",
      accuracy->one_device);
}

}  // namespace millrace::planner
