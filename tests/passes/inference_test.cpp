#include "passes/inference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph_facts.h"
#include "passes/rewrite.h"

namespace millrace::passes {
namespace {

using testing::ElementsAre;

TEST(Inference, DropoutDisappearsAndItsReadersTakeItsInput) {
  graph::Builder net;
  const graph::Value x = net.flatten(net.image(2, 3, 4, 4));
  const graph::Value a = net.linear(x, "a", {.features = 8});
  const graph::Value dropped = net.dropout(net.dropout(a, 0.5), 0.2);
  const graph::Value b = net.linear(dropped, "b", {.features = 4});
  const graph::Value last = net.dropout(b, 0.1);
  graph::Graph graph = net.take();
  graph.set_results({last.id, dropped.id});
  const std::string last_name = graph.tensor(last.id).name;
  const std::string dropped_name = graph.tensor(dropped.id).name;
  make_inference(graph);
  graph.validate();
  EXPECT_THAT(types_of(graph), ElementsAre("flatten", "linear", "linear"));
  EXPECT_EQ(graph.op(operator_named(graph, "b")).inputs[0], a.id);
  EXPECT_THAT(graph.results(), ElementsAre(b.id, a.id));
  EXPECT_EQ(graph.tensor(b.id).name, last_name);
  EXPECT_EQ(graph.tensor(a.id).name, dropped_name);
}

TEST(Inference, NormalisationsUseRunningStatisticsAndWriteNothing) {
  graph::Graph graph = small_residual_network();
  const auto before = types_of(graph);
  make_inference(graph);
  graph.validate();
  EXPECT_EQ(types_of(graph), before);
  const auto norms = all_of_type(graph, "batch_norm");
  ASSERT_EQ(norms.size(), 6u);
  for (graph::OperatorId id : norms) EXPECT_TRUE(graph.op(id).attributes.flag("inference"));
  for (graph::OperatorId id : graph.order()) EXPECT_TRUE(mutated_tensors(graph.op(id)).empty());
}

TEST(Inference, SingleSampleIsEnough) {
  graph::Builder net;
  graph::Value x = net.linear(net.flatten(net.image(2, 3, 4, 4)), "a", {.features = 8});
  x = net.batch_norm(x, "norm");
  graph::Graph graph = net.take();
  graph.add_result(x.id);
  EXPECT_EQ(mutated_tensors(graph.op(graph.order().back())).size(), 2u);
  make_inference(graph);
  EXPECT_EQ(mutated_tensors(graph.op(graph.order().back())).size(), 0u);
}

}  // namespace
}  // namespace millrace::passes
