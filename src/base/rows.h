// Rows of a batch.
#pragma once

#include <cstdint>
#include <vector>

namespace millrace {

// Rows begin … end - 1.
struct RowRange {
  int64_t begin = 0;
  int64_t end = 0;

  bool operator==(const RowRange&) const = default;
};

// The numbers of the rows, range after range; those of the whole batch if there are no ranges.
// Throws InputError for a range that is not inside the batch.
std::vector<int64_t> rows_of(const std::vector<RowRange>& ranges, int64_t batch);

}  // namespace millrace
