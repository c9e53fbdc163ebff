#include "gradient_check.h"

#include <fmt/format.h>

#include <algorithm>

namespace millrace::testing {
namespace {

class SingleDifferentiation : public Differentiation {
 public:
  SingleDifferentiation(Graph& graph, OperatorId id, TensorId seed)
      : graph_(graph), op_(graph.op(id)), seed_(seed), gradients_(op_.inputs.size(), kNone) {}

  const std::vector<TensorId>& gradients() const { return gradients_; }

  Graph& graph() override { return graph_; }
  const Operator& op() const override { return op_; }
  TensorId output_gradient(size_t output) const override { return output == 0 ? seed_ : kNone; }
  bool needs_gradient(size_t input) const override {
    return graph_.tensor(op_.inputs.at(input)).role == Role::parameter;
  }
  void set_input_gradient(size_t input, TensorId gradient) override {
    gradients_.at(input) = gradient;
  }
  OperatorId apply(std::string_view type, std::vector<TensorId> inputs,
                   Attributes attributes) override {
    return graph_.add_operator(type, fmt::format("{}/{}", op_.name, type), std::move(inputs),
                               std::move(attributes), Phase::backward);
  }

 private:
  Graph& graph_;
  const Operator op_;  // a copy: the graph's own moves when operators are added
  TensorId seed_;
  std::vector<TensorId> gradients_;
};

double weighted_sum(const Values& output, const Values& weights) {
  double sum = 0;
  for (size_t i = 0; i < output.size(); ++i) sum += output[i] * weights[i];
  return sum;
}

}  // namespace

OperatorWithGradient::OperatorWithGradient(const std::string& type, const Attributes& attributes,
                                           const std::vector<TensorType>& inputs,
                                           bool with_gradient) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    Tensor tensor;
    tensor.name = fmt::format("input{}", i);
    tensor.type = inputs[i];
    tensor.role = inputs[i].dtype == DataType::f32 ? Role::parameter : Role::input;
    inputs_.push_back(graph_.add_tensor(std::move(tensor)));
  }
  const OperatorId id = graph_.add_operator(type, "tested", inputs_, attributes);
  outputs_ = graph_.op(id).outputs;
  Tensor seed;
  seed.name = "output gradient";
  seed.type = graph_.tensor(outputs_.at(0)).type;
  seed.role = Role::input;
  seed_ = graph_.add_tensor(std::move(seed));
  SingleDifferentiation differentiation(graph_, id, seed_);
  if (with_gradient) definition_of(type).differentiate(differentiation);
  gradients_ = differentiation.gradients();
}

std::map<TensorId, Values> OperatorWithGradient::run(const std::vector<Values>& inputs,
                                                     const Values& output_gradient,
                                                     const KernelOptions& options,
                                                     const Layout& layout) const {
  std::map<TensorId, Values> values;
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
    if (entry.inputs[input].dtype != DataType::f32) continue;
    const TensorId gradient = tested.input_gradients()[input];
    if (gradient == kNone) {
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
