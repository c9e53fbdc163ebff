// Which classes a step of the margin head uses.
#pragma once

#include <cstdint>
#include <span>

#include "graph/margin_head.h"

namespace millrace {

// The tensor "sample" taken apart (graph/margin_head.h says how it lies). Borrows the tensor.
struct Sample {
  int64_t count = 0;
  const int32_t* targets = nullptr;
  const int32_t* classes = nullptr;  // null: every class in order

  int64_t class_at(int64_t position) const { return classes ? classes[position] : position; }
};

Sample sample_in(const int32_t* tensor, int64_t batch, double sample_rate);

// Fills the tensor: the classes of the batch that lie in `range`, in order, then others drawn
// uniformly without replacement until there are floor(rate * local) in all. The others depend on
// (seed, step, range) and on which classes the batch has, and on nothing else. Takes time and
// memory in proportion to the sample; `scratch` holds as many elements as there are labels.
// Throws InputError naming a label that is not a class.
void draw_sample(const ClassRange& range, double sample_rate, std::span<const int32_t> labels,
                 uint64_t seed, int64_t step, int32_t* scratch, int32_t* tensor);

}  // namespace millrace
