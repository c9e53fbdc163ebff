// Which classes a step of the margin head uses.
#pragma once

#include <cstdint>
#include <span>

#include "base/permutation.h"
#include "graph/margin_head.h"

namespace millrace::kernels {

// Fills the tensor "sample" (graph/margin_head.h says how it lies) for a batch's labels: the
// classes of `all` that lie in `range`, and the key by which others are drawn uniformly
// without replacement until there are floor(rate * local) in all. The key is a function of
// (seed, step, range) alone. `all` has the labels of the batch among others, or is the same.
// Throws InputError naming a label that is not a class.
void draw_sample(const graph::ClassRange& range, double sample_rate,
                 std::span<const int32_t> labels, std::span<const int32_t> all, uint64_t seed,
                 int64_t step, int32_t* tensor);

// The tensor read: the classes in use, counted from the part's first one, each at a position. No
// list of them is kept; any position can be asked for. Borrows the tensor.
class ClassSample {
 public:
  ClassSample(const int32_t* tensor, const graph::ClassRange& range, int64_t batch,
              double sample_rate);

  int64_t count() const { return count_; }

  // For each row of the batch the position of its class; -1: not in this part.
  const int32_t* targets() const { return targets_; }

  // Every class is in use, at the position of its own number.
  bool is_everything() const { return everything_; }

  // The classes at positions first .. first + classes.size().
  void list(int64_t first, std::span<int32_t> classes) const;

 private:
  int32_t other(int64_t number) const;

  int64_t count_;
  bool everything_;
  const int32_t* targets_;
  std::span<const int32_t> positives_;
  Permutation order_;  // of the classes that are no positives
};

}  // namespace millrace::kernels
