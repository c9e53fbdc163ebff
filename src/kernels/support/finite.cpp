#include "kernels/support/finite.h"

#include <atomic>
#include <cstring>

#include "base/parallel.h"
#include "kernels/support/vectorize.h"

namespace millrace::kernels {
namespace {

using WordLanes = uint32_t __attribute__((vector_size(64)));
constexpr int64_t kWordLanes = 16;

// The sum of carries out of the exponent: adding 1 to an exponent of all ones sets the top bit.
MILLRACE_VECTORIZED bool are_finite(const float* values, int64_t count) {
  constexpr uint32_t kOne = 0x00800000;
  WordLanes found[4] = {};
  int64_t i = 0;
  for (; i + 4 * kWordLanes <= count; i += 4 * kWordLanes) {
    for (int lane = 0; lane < 4; ++lane) {
      WordLanes words;
      std::memcpy(&words, values + i + lane * kWordLanes, sizeof(words));
      found[lane] |= (words & 0x7fffffffu) + kOne;
    }
  }
  const WordLanes all = (found[0] | found[1]) | (found[2] | found[3]);
  uint32_t bits = 0;
  for (int lane = 0; lane < kWordLanes; ++lane) bits |= all[lane];
  for (; i < count; ++i) {
    uint32_t word;
    std::memcpy(&word, values + i, sizeof(word));
    bits |= (word & 0x7fffffffu) + kOne;
  }
  return (bits & 0x80000000u) == 0;
}

}  // namespace

bool all_finite(const float* values, int64_t count) {
  std::atomic<bool> finite = true;
  parallel_ranges(count, kElementwiseGrain, [&](int, int64_t begin, int64_t end) {
    if (!are_finite(values + begin, end - begin)) finite.store(false, std::memory_order_relaxed);
  });
  return finite;
}

}  // namespace millrace::kernels
