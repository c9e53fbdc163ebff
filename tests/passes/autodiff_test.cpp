#include "passes/autodiff.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "graph_facts.h"
#include "passes/fusion.h"

namespace millrace::passes {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Autodiff, LinearClassifierStepByStep) {
  graph::Builder net;
  const graph::Value x = net.flatten(net.image(2, 3, 4, 4));
  net.classify(net.linear(net.relu(net.linear(x, "a", {.features = 6})), "b", {.features = 10}));
  graph::Graph graph = net.take();
  const size_t forward = graph.order().size();
  const auto gradients = differentiate(graph, graph.find_tensor("loss"));
  graph.validate();

  const std::vector<std::string> types = types_of(graph);
  EXPECT_THAT(std::vector<std::string>(types.begin() + static_cast<long>(forward), types.end()),
              ElementsAre("fill", "softmax_cross_entropy_backward", "linear_backward_weights",
                          "linear_backward_data", "relu_backward", "linear_backward_weights"));
  for (size_t i = 0; i < types.size(); ++i) {
    EXPECT_EQ(graph.op(graph.order()[i]).phase == graph::Phase::backward, i >= forward);
  }
  EXPECT_EQ(graph.op(graph.order()[forward + 2]).name, "b/linear_backward_weights");
  std::vector<std::string> parameters;
  for (const auto& pair : gradients) {
    const graph::Tensor& parameter = graph.tensor(pair.parameter);
    const graph::Tensor& gradient = graph.tensor(pair.gradient);
    parameters.push_back(parameter.name);
    EXPECT_EQ(gradient.name, parameter.name + ".grad");
    EXPECT_EQ(gradient.role, graph::Role::gradient);
    EXPECT_EQ(gradient.type, parameter.type);
  }
  EXPECT_THAT(parameters, ElementsAre("a.weight", "a.bias", "b.weight", "b.bias"));
}

TEST(Autodiff, TensorReadThreeTimesSumsItsGradientsWithTwoAdditions) {
  graph::Builder net;
  const graph::Value x = net.convolution(net.image(2, 3, 4, 4), "conv", {.channels = 4});
  const graph::Value left = net.sigmoid(x);
  const graph::Value right = net.tanh(x);
  const graph::Value both = net.add(left, right);
  const graph::Value y = net.add(both, net.relu6(x));
  graph::Graph graph = net.take();
  graph.add_result(y.id);
  const size_t forward_adds = all_of_type(graph, "add").size();
  differentiate(graph, y.id);
  graph.validate();
  const auto adds = all_of_type(graph, "add");
  ASSERT_EQ(adds.size(), forward_adds + 2);
  // The first sum stands directly behind the second of its parts.
  const graph::Operator& sum = graph.op(adds[forward_adds]);
  EXPECT_EQ(graph.tensor(sum.inputs[1]).producer,
            graph.order()[static_cast<size_t>(position_of(graph, adds[forward_adds])) - 1]);
  const graph::Operator& weights = graph.op(all_of_type(graph, "convolution_backward_weights")[0]);
  EXPECT_EQ(weights.inputs[1], graph.op(adds.back()).outputs[0]);
}

TEST(Autodiff, SharedParameterGetsTheSumOfItsGradients) {
  graph::Builder net;
  const graph::Value x = net.flatten(net.image(2, 4, 1, 1));
  const graph::Value w = net.parameter("w", {4, 4}, {});
  const graph::Value y = net.apply("linear", "second", {net.apply("linear", "first", {x, w}), w});
  graph::Graph graph = net.take();
  graph.add_result(y.id);
  const auto gradients = differentiate(graph, y.id);
  graph.validate();
  ASSERT_EQ(gradients.size(), 1u);
  const graph::Operator& sum = graph.op(graph.tensor(gradients[0].gradient).producer);
  EXPECT_EQ(sum.type, "add");
  EXPECT_EQ(sum.name, "w/add");
}

TEST(Autodiff, ParametersThatWouldShareOneGradientGetTheirOwn) {
  graph::Builder net;
  const graph::Value a = net.parameter("a", {2, 3}, {});
  const graph::Value b = net.parameter("b", {2, 3}, {});
  const graph::Value y = net.sigmoid(net.add(a, b));
  graph::Graph graph = net.take();
  graph.add_result(y.id);
  const auto gradients = differentiate(graph, y.id);
  graph.validate();
  ASSERT_EQ(gradients.size(), 2u);
  EXPECT_NE(gradients[0].gradient, gradients[1].gradient);
  EXPECT_EQ(graph.tensor(gradients[1].gradient).name, "b.grad");
  EXPECT_EQ(graph.op(graph.tensor(gradients[1].gradient).producer).inputs[0],
            gradients[0].gradient);
}

TEST(Autodiff, OnlyPathsToParametersGetGradients) {
  graph::Graph graph = small_residual_network();
  fuse(graph);
  const auto gradients = differentiate(graph, graph.find_tensor("loss"));
  graph.validate();
  auto counts = count_types(graph);
  // Nobody needs the gradient of the images, so the first convolution has no backward_data.
  EXPECT_EQ(counts["convolution_backward_weights"], 6);
  EXPECT_EQ(counts["convolution_backward_data"], 5);
  EXPECT_EQ(counts["batch_norm_backward"], 6);
  // Each block's output masks once; the stem's mask sits below its max_pool.
  EXPECT_EQ(counts["relu_backward"], 3);
  // The output of the pool and the output of the first block are read twice.
  EXPECT_EQ(counts["add"], 2);
  EXPECT_EQ(gradients.size(), 6u + 2 * 6 + 2);
  std::set<std::string> names;
  for (graph::OperatorId id : graph.order()) {
    EXPECT_TRUE(names.insert(graph.op(id).name).second) << graph.op(id).name;
  }
}

TEST(Autodiff, OperatorWithoutAGradientOnThePathIsNamed) {
  graph::Builder net;
  const graph::Value x = net.linear(net.flatten(net.image(2, 3, 4, 4)), "head", {.features = 6});
  net.classify(x);
  graph::Graph graph = net.take();
  const graph::TensorId top1 = graph.find_tensor("top1");
  ASSERT_NE(top1, graph::kNone);
  const std::string name = graph.op(graph.tensor(top1).producer).name;
  try {
    differentiate(graph, top1);
    FAIL() << "no error";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("'" + name + "' (top_k)"));
  }
}

TEST(Autodiff, LossWithoutParametersIsRefused) {
  graph::Builder net;
  const graph::Value y = net.sigmoid(net.image(2, 3, 4, 4));
  graph::Graph graph = net.take();
  EXPECT_THROW(differentiate(graph, y.id), InputError);
}

graph::TensorId add_input(graph::Graph& graph, const std::string& name) {
  graph::Tensor tensor;
  tensor.name = name;
  tensor.type = {{2, 3}};
  tensor.role = graph::Role::input;
  return graph.add_tensor(tensor);
}

// The gradient of both summands is what arrives: the results must be tensors of their own, and
// the tensor that the caller writes stays what it is.
TEST(Autodiff, SeedsArriveFromOutsideAndWantedGradientsAreResults) {
  graph::Graph graph;
  const graph::TensorId a = add_input(graph, "a");
  const graph::TensorId b = add_input(graph, "b");
  const graph::TensorId unread = add_input(graph, "unread");
  const graph::TensorId sum = graph.apply("add", "sum", {a, b});
  const graph::TensorId one = add_input(graph, "sum.grad_from_1");
  const graph::TensorId two = add_input(graph, "sum.grad_from_2");

  graph::Graph single = graph;
  const BackwardPass pass = differentiate(single, {{sum, one}}, {a, b, unread});
  single.validate();
  EXPECT_TRUE(pass.parameters.empty());
  ASSERT_EQ(pass.inputs.size(), 2u);
  EXPECT_EQ(single.tensor(pass.inputs[0].gradient).name, "a.grad");
  EXPECT_EQ(single.tensor(pass.inputs[1].gradient).name, "b.grad");
  EXPECT_NE(pass.inputs[0].gradient, pass.inputs[1].gradient);
  EXPECT_EQ(single.tensor(one).role, graph::Role::input);
  EXPECT_EQ(single.tensor(one).name, "sum.grad_from_1");
  EXPECT_THAT(single.results(), ElementsAre(pass.inputs[0].gradient, pass.inputs[1].gradient));

  differentiate(graph, {{sum, one}, {sum, two}}, {a});
  const graph::Operator& added = graph.op(all_of_type(graph, "add").at(1));
  EXPECT_THAT(added.inputs, ElementsAre(one, two));
  EXPECT_EQ(added.phase, graph::Phase::backward);
}

TEST(Autodiff, NothingIsAddedWhereNothingIsWanted) {
  graph::Graph graph;
  const graph::TensorId a = add_input(graph, "a");
  const graph::TensorId y = graph.apply("relu", "y", {a});
  const graph::TensorId arriving = add_input(graph, "y.grad_from_1");
  const size_t before = graph.order().size();
  const BackwardPass pass = differentiate(graph, {{y, arriving}}, {});
  EXPECT_TRUE(pass.parameters.empty() && pass.inputs.empty());
  EXPECT_EQ(graph.order().size(), before);
}

}  // namespace
}  // namespace millrace::passes
