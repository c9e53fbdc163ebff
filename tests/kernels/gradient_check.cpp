#include "gradient_check.h"

#include <fmt/format.h>

#include <algorithm>

namespace millrace::testing {
namespace {

class SingleDifferentiation : public graph::Differentiation {
 public:
  SingleDifferentiation(graph::Graph& graph, graph::OperatorId id, graph::TensorId seed)
      : graph_(graph),
        op_(graph.op(id)),
        seed_(seed),
        gradients_(op_.inputs.size(), graph::kNone) {}

  const std::vector<graph::TensorId>& gradients() const { return gradients_; }

  graph::Graph& graph() override { return graph_; }
  const graph::Operator& op() const override { return op_; }
  graph::TensorId output_gradient(size_t output) const override {
    return output == 0 ? seed_ : graph::kNone;
  }
  bool needs_gradient(size_t input) const override {
    return graph_.tensor(op_.inputs.at(input)).role == graph::Role::parameter;
  }
  void set_input_gradient(size_t input, graph::TensorId gradient) override {
    gradients_.at(input) = gradient;
  }
  graph::OperatorId apply(std::string_view type, std::vector<graph::TensorId> inputs,
                          graph::Attributes attributes) override {
    return graph_.add_operator(type, fmt::format("{}/{}", op_.name, type), std::move(inputs),
                               std::move(attributes), graph::Phase::backward);
  }

 private:
  graph::Graph& graph_;
  const graph::Operator op_;  // a copy: the graph's own moves when operators are added
  graph::TensorId seed_;
  std::vector<graph::TensorId> gradients_;
};

double weighted_sum(const Values& output, const Values& weights) {
  double sum = 0;
  for (size_t i = 0; i < output.size(); ++i) sum += output[i] * weights[i];
  return sum;
}

}  // namespace

OperatorWithGradient::OperatorWithGradient(const std::string& type,
                                           const graph::Attributes& attributes,
                                           const std::vector<graph::TensorType>& inputs,
                                           bool with_gradient) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    graph::Tensor tensor;
    tensor.name = fmt::format("input{}", i);
    tensor.type = inputs[i];
    tensor.role =
        inputs[i].dtype == graph::DataType::f32 ? graph::Role::parameter : graph::Role::input;
    inputs_.push_back(graph_.add_tensor(std::move(tensor)));
  }
  const graph::OperatorId id = graph_.add_operator(type, "tested", inputs_, attributes);
  outputs_ = graph_.op(id).outputs;
  graph::Tensor seed;
  seed.name = "output gradient";
  seed.type = graph_.tensor(outputs_.at(0)).type;
  seed.role = graph::Role::input;
  seed_ = graph_.add_tensor(std::move(seed));
  SingleDifferentiation differentiation(graph_, id, seed_);
  if (with_gradient) graph::definition_of(type).differentiate(differentiation);
  gradients_ = differentiation.gradients();
}

std::map<graph::TensorId, Values> OperatorWithGradient::run(const std::vector<Values>& inputs,
                                                            const Values& output_gradient,
                                                            const kernels::KernelOptions& options,
                                                            const graph::Layout& layout) const {
  std::map<graph::TensorId, Values> values;
  for (size_t i = 0; i < inputs.size(); ++i) values[inputs_[i]] = inputs[i];
  values[seed_] = output_gradient;
  return interpret(graph_, std::move(values), options, layout);
}

Values difference_quotients(const SingleOperator& single, const std::vector<Values>& inputs,
                            size_t input, const Values& weights) {
  constexpr double kStepWidth = 1e-3;
  Values quotients(inputs[input].size());
  for (size_t i = 0; i < quotients.size(); ++i) {
    std::vector<Values> above = inputs;
    std::vector<Values> below = inputs;
    above[input][i] = static_cast<double>(static_cast<float>(inputs[input][i] + kStepWidth));
    below[input][i] = static_cast<double>(static_cast<float>(inputs[input][i] - kStepWidth));
    const double rise = weighted_sum(run_reference(single, above).outputs[0], weights) -
                        weighted_sum(run_reference(single, below).outputs[0], weights);
    quotients[i] = rise / (above[input][i] - below[input][i]);
  }
  return quotients;
}

std::string check_gradients(const OperatorCase& entry, const std::vector<size_t>& constant) {
  const OperatorWithGradient tested(entry.type, entry.attributes, entry.inputs);
  const SingleOperator single(entry.type, entry.attributes, entry.inputs);
  const std::vector<Values> inputs = entry.values(true);
  const Values weights = random_values(single.outputs.at(0), 99, true);
  const auto values = tested.run(inputs, weights, {.reference_only = true});

  std::string faults;
  for (size_t input = 0; input < inputs.size(); ++input) {
    if (entry.inputs[input].dtype != graph::DataType::f32) continue;
    const graph::TensorId gradient = tested.input_gradients()[input];
    if (gradient == graph::kNone) {
      const bool allowed = std::find(constant.begin(), constant.end(), input) != constant.end();
      if (!allowed) faults += fmt::format("input {} gets no gradient\n", input);
      continue;
    }
    const Values quotients = difference_quotients(single, inputs, input, weights);
    const std::string fault = difference(values.at(gradient), quotients, entry.tolerance);
    if (!fault.empty()) faults += fmt::format("gradient of input {}: {}\n", input, fault);
  }
  return faults;
}

}  // namespace millrace::testing
