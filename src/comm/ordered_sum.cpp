#include "comm/ordered_sum.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "base/parallel.h"
#include "comm/narrowing.h"

namespace millrace::comm {
namespace {

constexpr int64_t kSumBlock = 2048;  // elements; the running sum stays in the first-level cache
constexpr int64_t kSumGrain = 32768;
constexpr int64_t kCopyGrain = 131072;

template <typename T>
T add(T left, T right) {
  if constexpr (std::is_integral_v<T>) {
    using Unsigned = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<Unsigned>(left) + static_cast<Unsigned>(right));
  } else {
    return left + right;
  }
}

template <typename T>
void sum_block(std::span<const void* const> sources, std::span<void* const> targets, int64_t begin,
               int64_t count) {
  std::array<T, kSumBlock> sum;
  std::copy_n(static_cast<const T*>(sources[0]) + begin, count, sum.data());
  for (const void* source : sources.subspan(1)) {
    const T* terms = static_cast<const T*>(source) + begin;
    for (int64_t i = 0; i < count; ++i) sum[i] = add(sum[i], terms[i]);
  }
  for (void* target : targets) {
    std::copy_n(sum.data(), count, static_cast<T*>(target) + begin);
  }
}

template <typename T>
void sum_all(std::span<const void* const> sources, std::span<void* const> targets, int64_t count) {
  parallel_ranges(count, kSumGrain, [&](int, int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; block += kSumBlock) {
      sum_block<T>(sources, targets, block, std::min(kSumBlock, end - block));
    }
  });
}

}  // namespace

void ordered_sum(std::span<const void* const> sources, std::span<void* const> targets,
                 int64_t count, ElementType type) {
  switch (type) {
    case ElementType::float32:
      return sum_all<float>(sources, targets, count);
    case ElementType::float64:
      return sum_all<double>(sources, targets, count);
    case ElementType::int32:
      return sum_all<int32_t>(sources, targets, count);
    case ElementType::float32_as_f16:
    case ElementType::float32_as_bf16:
      return ordered_narrowed_sum(sources, targets, count, type);
  }
}

void parallel_copy(void* target, const void* source, int64_t bytes) {
  if (target == source) return;
  parallel_ranges(bytes, kCopyGrain, [&](int, int64_t begin, int64_t end) {
    std::memcpy(static_cast<char*>(target) + begin, static_cast<const char*>(source) + begin,
                static_cast<size_t>(end - begin));
  });
}

}  // namespace millrace::comm
