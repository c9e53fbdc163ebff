#include "graph/graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "graph/builder.h"

namespace millrace::graph {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

Graph small_graph() {
  Builder net;
  Value x = net.image(2, 3, 8, 8);
  x = net.relu(net.batch_norm(net.convolution(x, "conv", {.channels = 4, .kernel = 3}), "bn"));
  net.classify(net.linear(net.flatten(x), "fc", {.features = 10}));
  return net.take();
}

void expect_fault(const Graph& graph, const std::string& what) {
  EXPECT_THAT([&] { graph.validate(); }, ThrowsMessage<std::logic_error>(HasSubstr(what)));
}

TEST(Graph, BuiltGraphIsValid) {
  const Graph graph = small_graph();
  EXPECT_NO_THROW(graph.validate());
  EXPECT_EQ(graph.order().size(), 8u);
}

TEST(Graph, NamesItsOutputsAndFindsThem) {
  const Graph graph = small_graph();
  const TensorId mean = graph.find_tensor("bn:1");
  ASSERT_NE(mean, kNone);
  EXPECT_EQ(graph.tensor(mean).type.shape, Shape{4});
  EXPECT_EQ(graph.op(graph.tensor(mean).producer).name, "bn");
  EXPECT_EQ(graph.find_tensor("nothing"), kNone);
}

TEST(Graph, ListsConsumersOnceAndInOrder) {
  Builder net;
  const Value x = net.image(1, 1, 2, 2);
  net.add(x, x);
  net.relu(x);
  const Graph graph = net.take();
  EXPECT_EQ(graph.consumers().at(static_cast<size_t>(x.id)), (std::vector<OperatorId>{0, 1}));
}

TEST(Graph, NamesTheLayerWhoseShapesDoNotFit) {
  Graph graph;
  Tensor tensor;
  tensor.type.shape = {1, 2};
  tensor.role = Role::input;
  const TensorId x = graph.add_tensor(tensor);
  EXPECT_THAT([&] { graph.apply("global_average_pool", "pool", {x}); },
              ThrowsMessage<InputError>(HasSubstr("Layer 'pool' (global_average_pool): needs")));
  EXPECT_EQ(graph.operator_count(), 0);
  EXPECT_EQ(graph.tensor_count(), 1);
}

TEST(Validate, UseBeforeMaking) {
  Graph graph = small_graph();
  std::vector<OperatorId> order = graph.order();
  std::swap(order[0], order[1]);
  graph.set_order(order);
  expect_fault(graph, "operator 'bn' (batch_norm): reads 'conv' before it is made");
}

TEST(Validate, MakingTwice) {
  Graph graph = small_graph();
  std::vector<OperatorId> order = graph.order();
  order.push_back(order[2]);
  graph.set_order(order);
  expect_fault(graph, "a second time");
}

TEST(Validate, ProducingAParameter) {
  Graph graph = small_graph();
  graph.op(0).outputs[0] = graph.find_tensor("conv.weight");
  expect_fault(graph, "makes 'conv.weight' a second time");
}

TEST(Validate, WrongType) {
  Graph graph = small_graph();
  graph.tensor(graph.find_tensor("conv")).type.shape[1] = 5;
  expect_fault(graph, "output 'conv' has another type");
}

TEST(Validate, WrongProducer) {
  Graph graph = small_graph();
  graph.tensor(graph.find_tensor("conv")).producer = 3;
  expect_fault(graph, "is not the producer of 'conv'");
}

TEST(Validate, WrongNumberOfOutputs) {
  Graph graph = small_graph();
  graph.op(1).outputs.pop_back();
  expect_fault(graph, "another number of outputs");
}

TEST(Validate, WrongNumberOfInputs) {
  Graph graph = small_graph();
  graph.op(1).inputs.pop_back();
  expect_fault(graph, "has 4 inputs instead of 5");
}

TEST(Validate, MissingResult) {
  Graph graph = small_graph();
  std::vector<OperatorId> order = graph.order();
  order.pop_back();
  graph.set_order(order);
  expect_fault(graph, "result 'top5' is never made");
}

TEST(Validate, ChangingWhatDoesNotLast) {
  Graph graph = small_graph();
  Tensor copy;
  copy.name = "copy of a running mean";
  copy.type = {{4}, DataType::f32};
  graph.op(1).inputs[3] = graph.add_tensor(copy);
  expect_fault(graph, "changes 'copy of a running mean', which does not last");
}

TEST(Validate, UnknownType) {
  Graph graph = small_graph();
  graph.op(2).type = "rely";
  expect_fault(graph, "no operator type 'rely'");
}

}  // namespace
}  // namespace millrace::graph
