// SGD, AdamW and LARS as their papers have them, in float64, one tensor at a time.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "graph/types.h"
#include "passes/settings.h"

namespace millrace::combinations {

// A trained tensor with everything that the optimizer remembers of it.
struct TrainedTensor {
  graph::Shape shape;
  std::vector<double> values;
  double rate = 1;  // times the learning rate
  // By the ending of its name in a checkpoint: ".momentum", or ".first_moment", ".second_moment".
  std::map<std::string, std::vector<double>> state;
};

class PlainOptimizer {
 public:
  explicit PlainOptimizer(const passes::OptimizerSettings& settings) : settings_(settings) {}

  // The states that the tensor needs, zero.
  void prepare(TrainedTensor& tensor) const;

  // One update with a gradient; `number` counts the updates of the tensor from 1.
  void update(TrainedTensor& tensor, const std::vector<double>& gradient, double learning_rate,
              int64_t number) const;

 private:
  void sgd(TrainedTensor& tensor, const std::vector<double>& gradient, double learning_rate,
           double decay) const;
  void adamw(TrainedTensor& tensor, const std::vector<double>& gradient, double learning_rate,
             double decay, int64_t number) const;
  void lars(TrainedTensor& tensor, const std::vector<double>& gradient, double learning_rate,
            double decay) const;
  void rmsprop(TrainedTensor& tensor, const std::vector<double>& gradient, double learning_rate,
               double decay) const;

  passes::OptimizerSettings settings_;
};

}  // namespace millrace::combinations
