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
  OperatorWithGradient(const std::string& type, const graph::Attributes& attributes,
                       const std::vector<graph::TensorType>& inputs, bool with_gradient = true);

  const graph::Graph& graph() const { return graph_; }
  const std::vector<graph::TensorId>& inputs() const { return inputs_; }
  const std::vector<graph::TensorId>& outputs() const { return outputs_; }
  graph::TensorId output_gradient() const { return seed_; }
  // By input; kNone where the rule gives none.
  const std::vector<graph::TensorId>& input_gradients() const { return gradients_; }

  // Values of all tensors.
  std::map<graph::TensorId, Values> run(const std::vector<Values>& inputs,
                                        const Values& output_gradient,
                                        const kernels::KernelOptions& options,
                                        const graph::Layout& layout = {}) const;

 private:
  graph::Graph graph_;
  std::vector<graph::TensorId> inputs_;
  std::vector<graph::TensorId> outputs_;
  graph::TensorId seed_ = graph::kNone;
  std::vector<graph::TensorId> gradients_;
};

// The change of sum(weights * first output) with each element of one input, by central
// differences.
Values difference_quotients(const SingleOperator& single, const std::vector<Values>& inputs,
                            size_t input, const Values& weights);

// What is wrong with the gradients, in words; empty if nothing is. Inputs in `constant` may go
// without one.
std::string check_gradients(const OperatorCase& entry, const std::vector<size_t>& constant = {});

}  // namespace millrace::testing
