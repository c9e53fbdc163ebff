#include "planner/published/checked_predictions.h"

#include <algorithm>
#include <string>

#include "base/text.h"
#include "planner/data/embedded.h"

namespace millrace::planner {

std::vector<double> checked_errors() {
  std::vector<double> errors;
  const std::vector<std::string> lines =
      split(std::string(embedded_file("checked_predictions.csv")), '\n');
  for (size_t i = 1; i < lines.size(); ++i) {
    if (!lines[i].empty()) errors.push_back(std::stod(lines[i].substr(lines[i].rfind(',') + 1)));
  }
  return errors;
}

double quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double place = share * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (place - static_cast<double>(below)) * (values[above] - values[below]);
}

}  // namespace millrace::planner
