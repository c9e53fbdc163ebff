// In which order the records of a data set are visited.
#pragma once

#include <cstdint>
#include <vector>

#include "base/permutation.h"

namespace millrace::data {

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

// Draws with replacement, each class that has records as often as the others and each record of a
// class as often as the others of it; also a function of (seed, epoch, position) alone. Immutable.
class BalancedOrder {
 public:
  // `classes`: the records of each class. At least one is not empty.
  explicit BalancedOrder(std::vector<std::vector<uint64_t>> classes);

  uint64_t at(uint64_t position, uint64_t seed, uint64_t epoch) const;

 private:
  std::vector<std::vector<uint64_t>> classes_;
};

}  // namespace millrace::data
