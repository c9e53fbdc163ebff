#include "train/batch_rows.h"

#include <algorithm>

namespace millrace::train {

BatchRows::BatchRows(std::vector<RowRange> wanted) {
  std::sort(wanted.begin(), wanted.end(),
            [](const RowRange& a, const RowRange& b) { return a.begin < b.begin; });
  for (const RowRange& range : wanted) {
    if (!ranges_.empty() && range.begin <= ranges_.back().end) {
      ranges_.back().end = std::max(ranges_.back().end, range.end);
    } else {
      ranges_.push_back(range);
    }
  }
}

int64_t BatchRows::place(int64_t row) const {
  int64_t before = 0;
  for (const RowRange& range : ranges_) {
    if (row < range.end) return before + row - range.begin;
    before += range.end - range.begin;
  }
  return before;
}

std::vector<RowRange> input_rows(const graph::Graph& graph, int64_t micro_batch,
                                 int64_t micro_batches) {
  std::vector<RowRange> ranges;
  for (const char* name : {"images", "labels"}) {
    const graph::TensorId id = graph.find_tensor(name);
    if (id == graph::kNone) continue;
    const graph::Tensor& tensor = graph.tensor(id);
    RowRange rows = {0, micro_batch};
    if (tensor.slice.axis == 0) {
      rows = {tensor.slice.begin, tensor.slice.begin + tensor.type.shape.at(0)};
    }
    for (int64_t m = 0; m < micro_batches; ++m) {
      ranges.push_back({m * micro_batch + rows.begin, m * micro_batch + rows.end});
    }
  }
  return ranges;
}

}  // namespace millrace::train
