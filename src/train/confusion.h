// Which classes were taken for which.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "train/evaluation.h"

namespace millrace::train {

// How a class fared. Plain data; a share of nothing is 0.
struct ClassScore {
  int64_t samples = 0;  // that are of it
  int64_t told = 0;     // that were taken for it
  int64_t right = 0;    // both
  double precision() const {
    return told == 0 ? 0 : static_cast<double>(right) / static_cast<double>(told);
  }
  double recall() const {
    return samples == 0 ? 0 : static_cast<double>(right) / static_cast<double>(samples);
  }
};

// Samples by their class and by the class that a network took them for: that of the largest
// logit, of equal ones the first.
class Confusion {
 public:
  Confusion(const KeptLogits& kept, int64_t classes);

  int64_t count(int64_t label, int64_t told) const {
    return counts_[static_cast<size_t>(label * classes_ + told)];
  }
  ClassScore score(int64_t label) const;

  // {"classes": [{"name", "samples", "precision", "recall"}…], "matrix": [[…]…]}
  Json to_json(const std::vector<std::string>& names) const;
  // A line for each class that has samples, and the pairs that are mixed up most.
  std::string to_text(const std::vector<std::string>& names) const;

 private:
  int64_t classes_;
  std::vector<int64_t> counts_;
};

}  // namespace millrace::train
