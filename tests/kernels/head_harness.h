// A step of the margin head, once by its operators, shard by shard, and once from its definition
// in double on whole matrices.
#pragma once

#include <string>
#include <vector>

#include "kernels/kernel.h"
#include "testing.h"

namespace millrace::testing {

struct HeadCase {
  int64_t batch = 6;
  int64_t dimension = 8;
  int64_t classes = 20;
  int shards = 1;
  double sample_rate = 1;
  double multiplier = 1, addend = 0.5, subtrahend = 0, scale = 64;
  bool exact_gradient = true;
  int64_t cache_bytes = int64_t{1} << 20;
  std::string optimizer = "momentum";  // or "adamw", or "" for plain
  graph::DataType storage = graph::DataType::f32;
  int threads = 1;
  bool reference = false;
  kernels::StepState step = {.seed = 7, .step = 3, .learning_rate = 0.05f};

  // Classes of shard s: [begin(s), begin(s + 1)).
  int64_t begin(int shard) const { return classes * shard / shards; }
};

// Rows are samples or classes.
struct HeadValues {
  Values embeddings;  // of unit length
  Values labels;
  Values centres;
  std::vector<Values> states;
};

// Embeddings and centres in random directions, labels uniform.
HeadValues random_head(const HeadCase& entry, uint64_t seed);

struct HeadStep {
  double loss = 0;
  Values of_embeddings;  // gradient, which lies across the embeddings
  Values centres;        // afterwards
  std::vector<Values> states;
  std::vector<std::vector<int32_t>> samples;  // by shard: classes counted over all
};

HeadStep run_head(const HeadCase& entry, const HeadValues& values);

// By the formulas, using the classes in `samples`.
HeadStep dense_head(const HeadCase& entry, const HeadValues& values,
                    const std::vector<std::vector<int32_t>>& samples);

// What of rows' gradients lies across the rows, which are of length one: the head leaves out parts
// along them, which the gradient of their normalisation does not let pass.
Values across(const Values& rows, const Values& gradients, int64_t dimension);

// Draws the samples alone.
std::vector<int32_t> sample_of(const HeadCase& entry, const Values& labels, int shard);

// The first difference between two steps in words; empty if there is none beyond `tolerance`.
std::string difference(const HeadStep& actual, const HeadStep& expected, double tolerance);

}  // namespace millrace::testing
