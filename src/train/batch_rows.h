// Which rows of each batch a process needs, and where they lie in what its feed delivers.
#pragma once

#include <vector>

#include "base/rows.h"
#include "graph/graph.h"

namespace millrace::train {

// Rows of a batch in order, those that several devices want once.
class BatchRows {
 public:
  BatchRows() = default;
  // Ranges in any order, which may overlap.
  explicit BatchRows(std::vector<RowRange> wanted);

  const std::vector<RowRange>& ranges() const { return ranges_; }

  // How many of the rows come before this one, which is one of them.
  int64_t place(int64_t row) const;

 private:
  std::vector<RowRange> ranges_;
};

// What the inputs of a device's graph need of a batch of that many micro-batches.
std::vector<RowRange> input_rows(const graph::Graph& graph, int64_t micro_batch,
                                 int64_t micro_batches);

}  // namespace millrace::train
