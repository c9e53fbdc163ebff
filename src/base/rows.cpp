#include "base/rows.h"

#include "base/error.h"

namespace millrace {

std::vector<int64_t> rows_of(const std::vector<RowRange>& ranges, int64_t batch) {
  std::vector<int64_t> rows;
  const auto add = [&](const RowRange& range) {
    for (int64_t row = range.begin; row < range.end; ++row) rows.push_back(row);
  };
  if (ranges.empty()) add({0, batch});
  for (const RowRange& range : ranges) {
    if (range.begin < 0 || range.begin > range.end || range.end > batch) {
      fail_input("Rows {} to {} are not inside a batch of {}.", range.begin, range.end, batch);
    }
    add(range);
  }
  return rows;
}

}  // namespace millrace
