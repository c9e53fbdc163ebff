#include "runtime/fill.h"

#include "base/parallel.h"
#include "base/random.h"

namespace millrace {
namespace {

constexpr int64_t kFillGrain = 65536;

// Rows of `row` values that lie `stride` apart in the whole tensor, the first at `first`.
struct Rows {
  int64_t row;
  int64_t stride;
  int64_t first;

  Rows(const Shape& shape, const Slice& slice) : row(elements_of(shape)), stride(row), first(0) {
    if (slice.axis == kNone) return;
    int64_t inner = 1;
    for (auto i = static_cast<size_t>(slice.axis) + 1; i < shape.size(); ++i) inner *= shape[i];
    row = inner * shape.at(static_cast<size_t>(slice.axis));
    stride = inner * slice.whole;
    first = inner * slice.begin;
  }

  int64_t place(int64_t i) const {
    return row == stride ? first + i : first + i / row * stride + i % row;
  }
};

}  // namespace

void fill_slice(const Initializer& initializer, std::string_view name, uint64_t seed,
                const Shape& shape, const Slice& slice, std::span<float> values, int64_t first) {
  const Random random(seed, hash_bytes(name.data(), name.size()));
  const Rows rows(shape, slice);
  parallel_for(static_cast<int64_t>(values.size()), kFillGrain, [&](int64_t i) {
    const auto index = static_cast<uint64_t>(rows.place(first + i));
    float value = initializer.first;
    if (initializer.kind == Initializer::Kind::normal) {
      value += initializer.second * random.normal(index);
    } else if (initializer.kind == Initializer::Kind::uniform) {
      value += (initializer.second - initializer.first) * random.uniform(index);
    }
    values[static_cast<size_t>(i)] = value;
  });
}

}  // namespace millrace
