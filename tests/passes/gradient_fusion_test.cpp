#include "passes/gradient_fusion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph_facts.h"
#include "passes/autodiff.h"
#include "passes/fusion.h"
#include "symbolic.h"

namespace millrace::passes {
namespace {

TEST(GradientFusion, BlockOutputsSumAndMaskInOneOperator) {
  graph::Graph graph = small_residual_network();
  fuse(graph);
  for (const auto& pair : differentiate(graph, graph.find_tensor("loss"))) {
    graph.add_result(pair.gradient);
  }
  const graph::Operator before = graph.op(all_of_type(graph, "add")[0]);
  const Symbolic values(graph);
  const graph::OperatorId mask = graph.consumers()[static_cast<size_t>(before.outputs[0])][0];
  const graph::TensorId masked = graph.op(mask).outputs[0];
  const graph::TensorId y = graph.op(mask).inputs[1];
  fuse_gradients(graph);
  graph.validate();
  auto counts = count_types(graph);
  EXPECT_EQ(counts["add"], 0);
  EXPECT_EQ(counts["add_relu_backward"], 2);
  EXPECT_EQ(counts["relu_backward"], 1);  // the last block's output is read once
  const graph::Operator& fused = graph.op(mask);
  EXPECT_EQ(fused.type, "add_relu_backward");
  EXPECT_EQ(fused.name, "block1.b_norm/add_relu_backward");
  EXPECT_THAT(fused.inputs, testing::ElementsAre(before.inputs[0], before.inputs[1], y));
  EXPECT_EQ(fused.outputs[0], masked);
  EXPECT_EQ(Symbolic(graph).results(), values.results());
}

TEST(GradientFusion, SumWithAnotherReaderStays) {
  graph::Graph graph;
  const auto input = [&](const char* name) {
    graph::Tensor tensor;
    tensor.name = name;
    tensor.type = {{2, 3}, graph::DataType::f32};
    tensor.role = graph::Role::input;
    return graph.add_tensor(tensor);
  };
  const graph::TensorId a = input("a");
  const graph::TensorId b = input("b");
  const graph::TensorId y = input("y");
  const graph::TensorId sum = graph.apply("add", "sum", {a, b}, {}, graph::Phase::backward);
  const graph::TensorId masked =
      graph.apply("relu_backward", "mask", {sum, y}, {}, graph::Phase::backward);
  const graph::TensorId other =
      graph.apply("tanh_backward", "other", {sum, y}, {}, graph::Phase::backward);
  graph.set_results({masked, other});
  fuse_gradients(graph);
  EXPECT_EQ(count_types(graph)["add"], 1);
  EXPECT_EQ(count_types(graph)["relu_backward"], 1);

  graph.set_order({graph.order()[0], graph.order()[1]});
  graph.set_results({masked, sum});
  fuse_gradients(graph);
  EXPECT_EQ(count_types(graph)["relu_backward"], 1);

  graph.set_results({masked});
  fuse_gradients(graph);
  graph.validate();
  EXPECT_EQ(types_of(graph), std::vector<std::string>{"add_relu_backward"});
}

}  // namespace
}  // namespace millrace::passes
