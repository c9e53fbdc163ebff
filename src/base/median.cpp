#include "base/median.h"

#include <algorithm>

namespace millrace {

double median(std::vector<double> values, double of_none) {
  if (values.empty()) return of_none;
  std::sort(values.begin(), values.end());
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

}  // namespace millrace
