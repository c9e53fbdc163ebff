// One block of the head: `rows` classes by `batch` samples, the products of embeddings and raw
// centres with the samples of a class next to each other. A logit is product * factor of its row.
#pragma once

#include <cstdint>

namespace millrace::kernels {

struct ProductBlock {
  const float* products = nullptr;
  const float* factors = nullptr;  // of each row: scale / norm
  int64_t rows = 0;
  int64_t batch = 0;
};

// Per sample over the blocks seen so far: the largest logit and the sum of e^(logit - largest).
struct RunningSums {
  float* maximum = nullptr;
  double* sum = nullptr;
  float* scratch = nullptr;  // of `batch` elements
};

void start(const RunningSums& sums, int64_t batch);
void add_block(const ProductBlock& block, const RunningSums& sums);

// Per sample: the gradient of a logit is weight * e^(logit - maximum).
struct LogitGradients {
  const float* maximum = nullptr;
  const float* weight = nullptr;
};

// How classes that are not a sample's own count where that is not by their logits alone.
struct OtherClasses {
  float limit = 0;              // a logit above it counts as 0
  const float* hard = nullptr;  // or, per sample: a logit above it counts times
  float growth = 0;             // this plus its cosine
  float scale = 1;              // logits are this times cosines
};

// Writes the logits as they count.
void change_logits(const ProductBlock& block, const OtherClasses& others, float* logits);

// Multiplies gradients of such logits by what makes them gradients of the products.
void multiply_slopes(const ProductBlock& block, const OtherClasses& others, float* gradients);

// Writes the gradients of the products: those of the logits times the factor.
void product_gradients(const ProductBlock& block, const LogitGradients& logits, float* gradients);

}  // namespace millrace::kernels
