#include "comm/narrowing.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/half.h"
#include "base/parallel.h"

namespace millrace::comm {
namespace {

constexpr int64_t kNarrowBlock = 2048;  // elements; what is at work stays in the first-level cache
constexpr int64_t kNarrowGrain = 32768;

using Halves = std::array<uint16_t, kNarrowBlock>;
using Floats = std::array<float, kNarrowBlock>;

void to_halves(ElementType type, const float* values, int64_t count, uint16_t* halves) {
  const auto convert = type == ElementType::float32_as_f16 ? floats_to_f16 : floats_to_bf16;
  convert(values, count, halves);
}

void to_floats(ElementType type, const uint16_t* halves, int64_t count, float* values) {
  const auto convert = type == ElementType::float32_as_f16 ? f16_to_floats : bf16_to_floats;
  convert(halves, count, values);
}

// The rounded terms of a source from `begin` on, in 16 bits.
void load(ElementType type, const void* source, bool wide, int64_t begin, int64_t count,
          Halves& halves) {
  if (wide) {
    to_halves(type, static_cast<const float*>(source) + begin, count, halves.data());
    return;
  }
  const char* place = static_cast<const char*>(source) + begin * 2;
  std::memcpy(halves.data(), place, static_cast<size_t>(count) * 2);
}

void sum_narrowed_block(std::span<const void* const> sources, std::span<void* const> targets,
                        int64_t begin, int64_t count, ElementType type,
                        const NarrowedOperands& operands) {
  Halves halves;
  Floats sum;
  Floats terms;
  for (size_t i = 0; i < sources.size(); ++i) {
    const bool wide = operands.wide_source == NarrowedOperands::kEvery ||
                      operands.wide_source == static_cast<int>(i);
    load(type, sources[i], wide, begin, count, halves);
    to_floats(type, halves.data(), count, i == 0 ? sum.data() : terms.data());
    if (i == 0) continue;
    for (int64_t j = 0; j < count; ++j) sum[j] += terms[j];
  }
  to_halves(type, sum.data(), count, halves.data());
  for (void* target : targets) {
    if (operands.narrow_targets) {
      char* place = static_cast<char*>(target) + begin * 2;
      std::memcpy(place, halves.data(), static_cast<size_t>(count) * 2);
    } else {
      to_floats(type, halves.data(), count, static_cast<float*>(target) + begin);
    }
  }
}

}  // namespace

bool is_narrowed(ElementType type) {
  return type == ElementType::float32_as_f16 || type == ElementType::float32_as_bf16;
}

void narrow(ElementType type, const float* values, int64_t count, void* narrowed) {
  parallel_ranges(count, kNarrowGrain, [&](int, int64_t begin, int64_t end) {
    to_halves(type, values + begin, end - begin, static_cast<uint16_t*>(narrowed) + begin);
  });
}

// From the end: a block of floats covers 16-bit numbers of its own and of later blocks only.
void widen_in_place(ElementType type, void* data, int64_t count) {
  Halves halves;
  for (int64_t begin = (count - 1) / kNarrowBlock * kNarrowBlock; begin >= 0;
       begin -= kNarrowBlock) {
    const int64_t length = std::min(kNarrowBlock, count - begin);
    std::memcpy(halves.data(), static_cast<const char*>(data) + begin * 2,
                static_cast<size_t>(length) * 2);
    to_floats(type, halves.data(), length, static_cast<float*>(data) + begin);
  }
}

// A narrow target that lies over its wide source stays behind what is still to be read only if the
// blocks are taken in order.
void ordered_narrowed_sum(std::span<const void* const> sources, std::span<void* const> targets,
                          int64_t count, ElementType type, const NarrowedOperands& operands) {
  const int64_t grain = operands.narrow_targets ? count : kNarrowGrain;
  parallel_ranges(count, grain, [&](int, int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; block += kNarrowBlock) {
      sum_narrowed_block(sources, targets, block, std::min(kNarrowBlock, end - block), type,
                         operands);
    }
  });
}

}  // namespace millrace::comm
