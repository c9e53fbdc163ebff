#include "runtime/fill.h"

#include <algorithm>

#include "base/parallel.h"
#include "base/random.h"

namespace millrace::runtime {
namespace {

constexpr int64_t kFillGrain = 65536;

// Rows of `row` values that lie `stride` apart in the whole tensor, the first at `first`.
struct Rows {
  int64_t row;
  int64_t stride;
  int64_t first;

  Rows(const graph::Shape& shape, const graph::Slice& slice)
      : row(graph::elements_of(shape)), stride(row), first(0) {
    if (slice.axis == graph::kNone) return;
    int64_t inner = 1;
    for (auto i = static_cast<size_t>(slice.axis) + 1; i < shape.size(); ++i) inner *= shape[i];
    row = inner * shape.at(static_cast<size_t>(slice.axis));
    stride = inner * slice.whole;
    first = inner * slice.begin;
  }

  int64_t place(int64_t i) const {
    return row == stride ? first + i : first + i / row * stride + i % row;
  }

  // How many values from the i-th on lie next to each other.
  int64_t run(int64_t i) const { return row == stride ? kFillGrain : row - i % row; }
};

}  // namespace

void fill_slice(const graph::Initializer& initializer, std::string_view name, uint64_t seed,
                const graph::Shape& shape, const graph::Slice& slice, std::span<float> values,
                int64_t first) {
  const Random random(seed, hash_bytes(name.data(), name.size()));
  const Rows rows(shape, slice);
  const bool normal = initializer.kind == graph::Initializer::Kind::normal;
  const bool uniform = initializer.kind == graph::Initializer::Kind::uniform;
  const float scale = normal ? initializer.second : initializer.second - initializer.first;
  parallel_ranges(
      static_cast<int64_t>(values.size()), kFillGrain, [&](int, int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end;) {
          const int64_t count = std::min(end - i, rows.run(first + i));
          const auto index = static_cast<uint64_t>(rows.place(first + i));
          const auto part = values.subspan(static_cast<size_t>(i), static_cast<size_t>(count));
          if (normal) random.normals(index, part);
          for (size_t k = 0; k < part.size(); ++k) {
            const float drawn = normal ? part[k] : uniform ? random.uniform(index + k) : 0.0f;
            part[k] = initializer.first + (normal || uniform ? scale * drawn : 0.0f);
          }
          i += count;
        }
      });
}

}  // namespace millrace::runtime
