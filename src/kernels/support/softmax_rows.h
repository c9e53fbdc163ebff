// Passes over one row of logits. Sums are taken in a fixed order.
#pragma once

#include <cstdint>

namespace millrace::kernels {

struct RowSums {
  float maximum;
  double exponentials;  // sum of e^(x - maximum)
  double shifted;       // sum of x - maximum
};

// As `sum_row`, and writes e^(x - maximum) to `out`.
void exponentiate_row(const float* x, int64_t count, float* out, RowSums* sums);

void sum_row(const float* x, int64_t count, RowSums* sums);

void scale_row(float* row, int64_t count, float factor);

// out = (probability - shift) * factor; `out` may be the row itself.
void shift_row(const float* probability, int64_t count, float shift, float factor, float* out);

// out = e^(x - maximum) * scale; `out` may be the row itself.
void probabilities_of_row(const float* x, int64_t count, float maximum, float scale, float* out);

// The number of entries above `bound`, or at it among the first `ties`.
int32_t rank_in_row(const float* row, int32_t count, int32_t ties, float bound);

}  // namespace millrace::kernels
