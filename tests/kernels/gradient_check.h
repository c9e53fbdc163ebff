// Compares an operator's gradient rule with difference quotients of its reference kernel.
#pragma once

#include <vector>

#include "case_file.h"
#include "graph/operator_definition.h"

namespace millrace::testing {

// A graph of one operator with the gradient of its first output given from outside, and the
// backward operators that its rule adds.
class OperatorWithGradient {
 public:
  OperatorWithGradient(const std::string& type, const Attributes& attributes,
                       const std::vector<TensorType>& inputs, bool with_gradient = true);

  const Graph& graph() const { return graph_; }
  const std::vector<TensorId>& inputs() const { return inputs_; }
  const std::vector<TensorId>& outputs() const { return outputs_; }
  TensorId output_gradient() const { return seed_; }
  // By input; kNone where the rule gives none.
  const std::vector<TensorId>& input_gradients() const { return gradients_; }

  // Values of all tensors.
  std::map<TensorId, Values> run(const std::vector<Values>& inputs, const Values& output_gradient,
                                 const KernelOptions& options, const Layout& layout = {}) const;

 private:
  Graph graph_;
  std::vector<TensorId> inputs_;
  std::vector<TensorId> outputs_;
  TensorId seed_ = kNone;
  std::vector<TensorId> gradients_;
};

// The change of sum(weights * first output) with each element of one input, by central
// differences.
Values difference_quotients(const SingleOperator& single, const std::vector<Values>& inputs,
                            size_t input, const Values& weights);

// What is wrong with the gradients, in words; empty if nothing is. Inputs in `constant` may go
// without one.
std::string check_gradients(const OperatorCase& entry, const std::vector<size_t>& constant = {});

}  // namespace millrace::testing
