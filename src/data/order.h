// In which order the records of a data set are visited.
#pragma once

#include <cstdint>

#include "base/permutation.h"

namespace millrace {

// A permutation of [0, count) that is a function of (seed, epoch) alone and needs no memory:
// any thread can ask for any position, and a run can start anywhere.
class ShuffledOrder {
 public:
  ShuffledOrder(uint64_t count, uint64_t seed, uint64_t epoch);

  // The record at this position; position < count.
  uint64_t at(uint64_t position) const { return permutation_.at(position); }

 private:
  Permutation permutation_;
};

}  // namespace millrace
