#include <gtest/gtest.h>

#include <map>

#include "graph/builder.h"
#include "graph/operator_definition.h"

namespace millrace::graph {
namespace {

using Types = std::vector<std::string>;

// Differentiates one operator whose first output's gradient is the input "dy".
class OneOperator : public Differentiation {
 public:
  OneOperator(Graph graph, OperatorId id) : graph_(std::move(graph)), id_(id) {
    Tensor tensor;
    tensor.name = "dy";
    tensor.type = graph_.tensor(graph_.op(id).outputs.at(0)).type;
    tensor.role = Role::input;
    dy = graph_.add_tensor(std::move(tensor));
  }

  Graph& graph() override { return graph_; }
  const Operator& op() const override { return graph_.op(id_); }
  TensorId output_gradient(size_t output) const override { return output == 0 ? dy : kNone; }
  bool needs_gradient(size_t input) const override { return wanted.at(input); }
  void set_input_gradient(size_t input, TensorId gradient) override { gradients[input] = gradient; }
  OperatorId apply(std::string_view type, std::vector<TensorId> inputs,
                   Attributes attributes) override {
    added.emplace_back(type);
    return graph_.add_operator(type, op().name + "/" + std::string(type), std::move(inputs),
                               std::move(attributes), Phase::backward);
  }

  // Runs the rule, checks the graph and that every gradient looks like its input.
  Types run(std::vector<bool> inputs_wanted) {
    wanted = std::move(inputs_wanted);
    definition_of(op().type).differentiate(*this);
    graph_.validate();
    for (size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_EQ(gradients.count(i), wanted[i] ? 1u : 0u) << op().type << " input " << i;
    }
    for (const auto& [i, gradient] : gradients) {
      EXPECT_EQ(graph_.tensor(gradient).type, graph_.tensor(input(i)).type)
          << op().type << " input " << i;
    }
    return added;
  }

  TensorId dy = kNone;
  std::vector<bool> wanted;
  std::map<size_t, TensorId> gradients;
  Types added;

 private:
  Graph graph_;
  OperatorId id_;
};

OneOperator last_of(Builder& net, const std::string& flag = {}) {
  Graph graph = net.take();
  const OperatorId id = graph.operator_count() - 1;
  if (!flag.empty()) graph.op(id).attributes.set(flag, true);
  return OneOperator(std::move(graph), id);
}

TEST(GradientRules, ActivationsUseTheirOutput) {
  for (Value (Builder::*make)(Value) : {&Builder::relu, &Builder::relu6, &Builder::sigmoid,
                                        &Builder::tanh, &Builder::hardsigmoid}) {
    Builder net;
    (net.*make)(net.image(2, 3, 4, 5));
    OneOperator one = last_of(net);
    EXPECT_EQ(one.run({true}), Types{one.op().type + "_backward"});
    EXPECT_EQ(one.graph().op(1).inputs, (std::vector<TensorId>{one.dy, one.output(0)}));
  }
}

TEST(GradientRules, SwishesUseTheirInput) {
  for (Value (Builder::*make)(Value) : {&Builder::silu, &Builder::hardswish}) {
    Builder net;
    (net.*make)(net.image(2, 3, 4, 5));
    OneOperator one = last_of(net);
    EXPECT_EQ(one.run({true}), Types{one.op().type + "_backward"});
    EXPECT_EQ(one.graph().op(1).inputs, (std::vector<TensorId>{one.dy, one.op().inputs[0]}));
  }
}

TEST(GradientRules, AddHandsOnOneGradient) {
  for (const bool relu : {false, true}) {
    Builder net;
    const Value x = net.image(2, 3, 4, 5);
    net.add(x, x);
    OneOperator one = last_of(net, relu ? "relu" : "");
    EXPECT_EQ(one.run({true, true}), relu ? Types{"relu_backward"} : Types{});
    EXPECT_EQ(one.gradients[0], one.gradients[1]);
    EXPECT_EQ(one.gradients[0] == one.dy, !relu);
  }
}

TEST(GradientRules, WeightsComeBeforeData) {
  Builder net;
  net.convolution(net.image(2, 6, 9, 9), "conv",
                  {.channels = 4, .kernel = 3, .stride = 2, .groups = 2, .bias = true});
  OneOperator one = last_of(net, "relu");
  EXPECT_EQ(one.run({true, true, true}),
            (Types{"relu_backward", "convolution_backward_weights", "convolution_backward_data"}));

  Builder dense;
  dense.linear(dense.flatten(dense.image(2, 6, 3, 3)), "fc", {.features = 7});
  OneOperator linear = last_of(dense);
  EXPECT_EQ(linear.run({true, true, true}),
            (Types{"linear_backward_weights", "linear_backward_data"}));
}

TEST(GradientRules, FirstLayerMakesNoDataGradient) {
  Builder net;
  net.convolution(net.image(2, 3, 9, 9), "conv", {.channels = 4, .kernel = 3});
  OneOperator one = last_of(net);
  EXPECT_EQ(one.run({false, true}), Types{"convolution_backward_weights"});
}

TEST(GradientRules, BatchNorm) {
  Builder net;
  net.batch_norm(net.image(2, 3, 4, 5), "bn");
  OneOperator one = last_of(net, "relu");
  EXPECT_EQ(one.run({true, true, true, false, false}), Types{"batch_norm_backward"});
  EXPECT_TRUE(one.graph().op(1).attributes.flag("relu"));
}

TEST(GradientRules, BatchNormWithResidual) {
  for (const bool relu : {false, true}) {
    Builder net;
    net.batch_norm(net.image(2, 3, 4, 5), "bn");
    Graph graph = net.take();
    Operator& op = graph.op(0);
    op.inputs.push_back(op.inputs[0]);
    op.attributes.set("residual", true);
    op.attributes.set("relu", relu);
    OneOperator one(std::move(graph), 0);
    Types expected = {"batch_norm_backward"};
    if (relu) expected.insert(expected.begin(), "relu_backward");
    EXPECT_EQ(one.run({true, true, true, false, false, true}), expected);
    const Operator& backward = one.graph().op(one.graph().operator_count() - 1);
    EXPECT_FALSE(backward.attributes.flag("relu"));
    EXPECT_EQ(one.gradients[5], backward.inputs[0]);
  }
}

TEST(GradientRules, BatchNormIsRecomputedFromItsStatistics) {
  Builder net;
  net.batch_norm(net.image(2, 3, 4, 5), "bn");
  Graph graph = net.take();
  const Operator op = graph.op(0);
  const OperatorDefinition& definition = definition_of(op.type);
  const TensorId again = graph.apply(definition.recompute_type, "again",
                                     definition.recompute_inputs(op), op.attributes);
  EXPECT_EQ(graph.tensor(again).type, graph.tensor(op.outputs[0]).type);
  EXPECT_EQ(graph.op(1).inputs[3], op.outputs[1]);
  EXPECT_EQ(graph.op(1).inputs[4], op.outputs[2]);
}

TEST(GradientRules, Pools) {
  const PoolOptions options = {.kernel = 3, .stride = 2, .padding = 1};
  Builder maximum;
  maximum.max_pool(maximum.image(2, 3, 8, 9), options);
  OneOperator one = last_of(maximum, "relu");
  EXPECT_EQ(one.run({true}), (Types{"relu_backward", "max_pool_backward"}));
  Builder average;
  average.average_pool(average.image(2, 3, 8, 9), options);
  EXPECT_EQ(last_of(average).run({true}), Types{"average_pool_backward"});
  Builder global;
  global.global_average_pool(global.image(2, 3, 8, 9));
  EXPECT_EQ(last_of(global).run({true}), Types{"global_average_pool_backward"});
  Builder adaptive;
  adaptive.adaptive_average_pool(adaptive.image(2, 3, 8, 9), 3, 4);
  EXPECT_EQ(last_of(adaptive).run({true}), Types{"adaptive_average_pool_backward"});
}

TEST(GradientRules, ConcatSlicesInOrder) {
  Builder net;
  const Value x = net.image(2, 3, 4, 5);
  net.concat({x, net.concat({x, x}, 1), x}, 1);
  OneOperator one = last_of(net);
  EXPECT_EQ(one.run({true, true, false}), (Types{"slice", "slice"}));
  const Operator& second = one.graph().op(one.graph().operator_count() - 1);
  EXPECT_EQ(second.attributes.integer("begin"), 3);
  EXPECT_EQ(second.attributes.integer("end"), 9);
}

TEST(GradientRules, TheRest) {
  Builder prelu;
  prelu.prelu(prelu.image(2, 3, 4, 5), "prelu");
  EXPECT_EQ(last_of(prelu).run({true, true}), Types{"prelu_backward"});
  Builder dropout;
  dropout.dropout(dropout.image(2, 3, 4, 5), 0.25);
  OneOperator one = last_of(dropout);
  EXPECT_EQ(one.run({true}), Types{"dropout_backward"});
  EXPECT_EQ(one.graph().op(1).attributes, one.op().attributes);
  Builder flatten;
  flatten.flatten(flatten.image(2, 3, 4, 5));
  EXPECT_EQ(last_of(flatten).run({true}), Types{"reshape"});
  Builder normalize;
  normalize.l2_normalize(normalize.flatten(normalize.image(2, 3, 4, 5)));
  EXPECT_EQ(last_of(normalize).run({true}), Types{"l2_normalize_backward"});
}

TEST(GradientRules, LossUsesItsProbabilities) {
  Builder net;
  net.classify(net.flatten(net.image(2, 3, 1, 2)), {.label_smoothing = 0.1});
  Graph graph = net.take();
  const OperatorId loss = graph.tensor(graph.find_tensor("loss")).producer;
  OneOperator one(std::move(graph), loss);
  EXPECT_EQ(one.run({true, false}), Types{"softmax_cross_entropy_backward"});
  const Operator& backward = one.graph().op(one.graph().operator_count() - 1);
  EXPECT_EQ(backward.inputs, (std::vector<TensorId>{one.dy, one.output(1), one.input(1)}));
  EXPECT_EQ(backward.attributes.number("label_smoothing"), 0.1);
}

}  // namespace
}  // namespace millrace::graph
