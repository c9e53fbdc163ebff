#include "kernels/head/softmax_block.h"

#include <limits>

#include "kernels/support/vector_math.h"

namespace millrace::kernels {
namespace {

MILLRACE_VECTORIZED void maxima(const ProductBlock& block, float* __restrict best) {
  const int64_t batch = block.batch;
  for (int64_t i = 0; i < batch; ++i) best[i] = -std::numeric_limits<float>::infinity();
  for (int64_t row = 0; row < block.rows; ++row) {
    const float* __restrict x = block.products + row * batch;
    const float factor = block.factors[row];
    for (int64_t i = 0; i < batch; ++i) {
      const float logit = x[i] * factor;
      best[i] = logit > best[i] ? logit : best[i];
    }
  }
}

MILLRACE_VECTORIZED void raise_maxima(const float* __restrict best, int64_t batch,
                                      float* __restrict maximum, double* __restrict sum) {
  for (int64_t i = 0; i < batch; ++i) {
    const float raised = best[i] > maximum[i] ? best[i] : maximum[i];
    const float shrink = vector_exp(maximum[i] - raised);
    sum[i] = sum[i] == 0 ? 0 : sum[i] * static_cast<double>(shrink);
    maximum[i] = raised;
  }
}

MILLRACE_VECTORIZED void exponentials(const ProductBlock& block, const float* __restrict maximum,
                                      float* __restrict sums) {
  const int64_t batch = block.batch;
  for (int64_t i = 0; i < batch; ++i) sums[i] = 0;
  for (int64_t row = 0; row < block.rows; ++row) {
    const float* __restrict x = block.products + row * batch;
    const float factor = block.factors[row];
    for (int64_t i = 0; i < batch; ++i) sums[i] += vector_exp(x[i] * factor - maximum[i]);
  }
}

MILLRACE_VECTORIZED void row_gradients(const float* __restrict x, float factor,
                                       const float* __restrict maximum,
                                       const float* __restrict weight, int64_t batch,
                                       float* __restrict out) {
  for (int64_t i = 0; i < batch; ++i) {
    out[i] = vector_exp(x[i] * factor - maximum[i]) * weight[i] * factor;
  }
}

MILLRACE_VECTORIZED void filter_row(const float* __restrict x, float factor, float limit,
                                    int64_t batch, float* __restrict out) {
  for (int64_t i = 0; i < batch; ++i) {
    const float logit = x[i] * factor;
    out[i] = logit > limit ? 0.0f : logit;
  }
}

MILLRACE_VECTORIZED void filter_slopes(const float* __restrict x, float factor, float limit,
                                       int64_t batch, float* __restrict out) {
  for (int64_t i = 0; i < batch; ++i) out[i] *= x[i] * factor > limit ? 0.0f : factor;
}

MILLRACE_VECTORIZED void harden_row(const float* __restrict x, float factor,
                                    const float* __restrict hard, float growth, float inverse,
                                    int64_t batch, float* __restrict out) {
  for (int64_t i = 0; i < batch; ++i) {
    const float logit = x[i] * factor;
    out[i] = logit > hard[i] ? logit * (growth + logit * inverse) : logit;
  }
}

MILLRACE_VECTORIZED void harden_slopes(const float* __restrict x, float factor,
                                       const float* __restrict hard, float growth, float inverse,
                                       int64_t batch, float* __restrict out) {
  for (int64_t i = 0; i < batch; ++i) {
    const float logit = x[i] * factor;
    out[i] *= factor * (logit > hard[i] ? growth + 2.0f * logit * inverse : 1.0f);
  }
}

}  // namespace

void change_logits(const ProductBlock& block, const OtherClasses& others, float* logits) {
  for (int64_t row = 0; row < block.rows; ++row) {
    const float* x = block.products + row * block.batch;
    float* out = logits + row * block.batch;
    if (others.hard == nullptr) {
      filter_row(x, block.factors[row], others.limit, block.batch, out);
    } else {
      harden_row(x, block.factors[row], others.hard, others.growth, 1 / others.scale, block.batch,
                 out);
    }
  }
}

void multiply_slopes(const ProductBlock& block, const OtherClasses& others, float* gradients) {
  for (int64_t row = 0; row < block.rows; ++row) {
    const float* x = block.products + row * block.batch;
    float* out = gradients + row * block.batch;
    if (others.hard == nullptr) {
      filter_slopes(x, block.factors[row], others.limit, block.batch, out);
    } else {
      harden_slopes(x, block.factors[row], others.hard, others.growth, 1 / others.scale,
                    block.batch, out);
    }
  }
}

void start(const RunningSums& sums, int64_t batch) {
  for (int64_t i = 0; i < batch; ++i) {
    sums.maximum[i] = -std::numeric_limits<float>::infinity();
    sums.sum[i] = 0;
  }
}

void add_block(const ProductBlock& block, const RunningSums& sums) {
  maxima(block, sums.scratch);
  raise_maxima(sums.scratch, block.batch, sums.maximum, sums.sum);
  exponentials(block, sums.maximum, sums.scratch);
  for (int64_t i = 0; i < block.batch; ++i) sums.sum[i] += static_cast<double>(sums.scratch[i]);
}

void product_gradients(const ProductBlock& block, const LogitGradients& logits, float* gradients) {
  for (int64_t row = 0; row < block.rows; ++row) {
    const int64_t at = row * block.batch;
    row_gradients(block.products + at, block.factors[row], logits.maximum, logits.weight,
                  block.batch, gradients + at);
  }
}

}  // namespace millrace::kernels
