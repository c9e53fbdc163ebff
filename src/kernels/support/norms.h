// Sums of squares that do not depend on the number of threads.
#pragma once

#include <cstdint>

namespace millrace::kernels {

// Elements are summed in double in chunks of this many, then chunk by chunk.
inline constexpr int64_t kNormChunk = 4096;

inline int64_t norm_chunks(int64_t count) { return (count + kNormChunk - 1) / kNormChunk; }

// Squares of `count` elements, one sum per chunk into `sums` (norm_chunks(count) of them), on the
// calling thread's team.
void chunk_squares(const float* values, int64_t count, double* sums);

// The sum over `values`, with `sums` as scratch.
double sum_squares(const float* values, int64_t count, double* sums);

}  // namespace millrace::kernels
