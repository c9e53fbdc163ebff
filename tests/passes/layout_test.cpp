#include "passes/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "graph_facts.h"
#include "passes/autodiff.h"
#include "passes/optimizer.h"
#include "passes/rewrite.h"
#include "symbolic.h"

namespace millrace::passes {
namespace {

using testing::ElementsAre;

const graph::Layout kPlain;
const graph::Layout kImage("aBcd8b");
const graph::Layout kWeights("ABcd8b8a");
const graph::Layout kTurned("ABcd8a8b");

// Convolutions like blocks, the rest takes what it gets.
class FakeOracle : public LayoutOracle {
 public:
  Wish wish(const graph::Graph& graph, const graph::Operator& op) const override {
    if (op.type == "convolution") return {{kImage, kWeights}, {kImage}};
    if (op.type == "convolution_backward_data") return {{kImage, kTurned}, {kImage}};
    if (op.type == "convolution_backward_weights") return {{kImage, kImage}, {kWeights}};
    Wish wish;
    const bool follows = op.type == "relu" || op.type == "relu_backward" ||
                         op.type == "sgd_update" || op.type == "sgd_plain_update";
    const graph::Layout layout = follows ? graph.tensor(op.inputs[0]).layout : graph::Layout();
    wish.inputs.assign(op.inputs.size(), layout);
    wish.outputs.assign(op.outputs.size(), layout);
    return wish;
  }
};

graph::Graph two_convolutions() {
  graph::Builder net;
  graph::Value x = net.convolution(net.image(2, 8, 4, 4), "conv1", {.channels = 8});
  x = net.convolution(net.relu(x), "conv2", {.channels = 8});
  net.classify(net.linear(net.flatten(x), "head", {.features = 10}));
  graph::Graph graph = net.take();
  add_updates(graph, differentiate(graph, graph.find_tensor("loss")), {});
  return graph;
}

const graph::Layout& layout_of(const graph::Graph& graph, const char* name) {
  return graph.tensor(graph.find_tensor(name)).layout;
}

TEST(LayoutPass, TwoConvolutionsByHand) {
  graph::Graph graph = two_convolutions();
  const Symbolic before(graph);
  const LayoutReport report = choose_layouts(graph, FakeOracle());
  graph.validate();
  // Out of the blocks for flatten; back into blocks, once, for the gradient that both backward
  // convolutions read; the weights once, turned, for backward_data.
  EXPECT_EQ(report.reorders, 3);
  ASSERT_EQ(report.reordered.size(), 3u);
  EXPECT_EQ(report.reordered[0], "conv2");
  EXPECT_EQ(graph.op(graph.tensor(graph.find_tensor(report.reordered[1])).producer).type,
            "reshape");
  EXPECT_EQ(report.reordered[2], "conv2.weight");
  EXPECT_EQ(report.reorder_bytes, (2 * 2 * 8 * 4 * 4 + 8 * 8) * 4);
  EXPECT_EQ(layout_of(graph, "images"), kImage);
  EXPECT_EQ(layout_of(graph, "conv1.weight"), kWeights);
  EXPECT_EQ(layout_of(graph, "conv1.weight.grad"), kWeights);
  EXPECT_EQ(layout_of(graph, "conv1.weight.momentum"), kWeights);
  EXPECT_EQ(layout_of(graph, "conv2.weight/reorder"), kTurned);
  EXPECT_EQ(layout_of(graph, "head.weight"), kPlain);
  EXPECT_EQ(layout_of(graph, "conv2/reorder"), kPlain);
  const Symbolic after(graph);
  EXPECT_EQ(after.results(), before.results());
  EXPECT_EQ(after.persistent(), before.persistent());
}

TEST(LayoutPass, ReorderStandsDirectlyBeforeItsReaderInTheSamePhase) {
  graph::Graph graph = two_convolutions();
  choose_layouts(graph, FakeOracle());
  const auto readers = graph.consumers();
  const auto reorders = all_of_type(graph, "reorder");
  ASSERT_EQ(reorders.size(), 3u);
  for (graph::OperatorId id : reorders) {
    const graph::Operator& reorder = graph.op(id);
    const graph::OperatorId reader = readers[static_cast<size_t>(reorder.outputs[0])][0];
    EXPECT_EQ(position_of(graph, id) + 1, position_of(graph, reader));
    EXPECT_EQ(reorder.phase, graph.op(reader).phase);
  }
  EXPECT_EQ(readers[static_cast<size_t>(graph.op(reorders[1]).outputs[0])].size(), 2u);
}

TEST(LayoutPass, EveryReaderGetsWhatItWishes) {
  graph::Graph graph = two_convolutions();
  const FakeOracle oracle;
  choose_layouts(graph, oracle);
  for (graph::OperatorId id : graph.order()) {
    const graph::Operator& op = graph.op(id);
    if (op.type == "reorder") continue;
    const bool is_view = graph::definition_of(op.type).is_view;
    const auto wish = oracle.wish(graph, op);
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      EXPECT_EQ(graph.tensor(op.inputs[i]).layout, is_view ? kPlain : wish.inputs[i]) << op.name;
    }
    for (size_t i = 0; i < op.outputs.size(); ++i) {
      EXPECT_EQ(graph.tensor(op.outputs[i]).layout, is_view ? kPlain : wish.outputs[i]) << op.name;
    }
  }
}

TEST(LayoutPass, FixedTensorsStayAndCostTheirReorders) {
  graph::Graph graph = two_convolutions();
  const LayoutReport report =
      choose_layouts(graph, FakeOracle(), {{"conv1.weight", kPlain}, {"images", kPlain}});
  graph.validate();
  EXPECT_EQ(layout_of(graph, "images"), kPlain);
  EXPECT_EQ(layout_of(graph, "conv1.weight"), kPlain);
  EXPECT_EQ(layout_of(graph, "conv1.weight.momentum"), kPlain);
  // The images once for forward and backward, the weights for forward, their gradient for the
  // update, and the three that are always there.
  EXPECT_EQ(report.reorders, 6);
  EXPECT_EQ(std::count(report.reordered.begin(), report.reordered.end(), "images"), 1);
  EXPECT_EQ(std::count(report.reordered.begin(), report.reordered.end(), "conv1.weight"), 1);
  EXPECT_EQ(std::count(report.reordered.begin(), report.reordered.end(), "conv1.weight.grad"), 1);
}

TEST(LayoutPass, CopyIsMadeAnewOnceTheTensorIsWritten) {
  graph::Graph graph;
  const auto tensor = [&](const char* name, graph::Shape shape, graph::Role role) {
    graph::Tensor made;
    made.name = name;
    made.type.shape = std::move(shape);
    made.role = role;
    return graph.add_tensor(made);
  };
  const graph::TensorId x = tensor("x", {2, 8, 4, 4}, graph::Role::input);
  const graph::TensorId w = tensor("w", {8, 8, 1, 1}, graph::Role::parameter);
  const graph::TensorId g = tensor("g", {8, 8, 1, 1}, graph::Role::input);
  const graph::Attributes one = {{"stride", graph::Shape{1, 1}},
                                 {"padding", graph::Shape{0, 0}},
                                 {"dilation", graph::Shape{1, 1}},
                                 {"groups", int64_t{1}}};
  const graph::TensorId a = graph.apply("convolution", "a", {x, w}, one);
  const graph::TensorId b = graph.apply("convolution", "b", {x, w}, one);
  graph.add_operator("sgd_plain_update", "update", {w, g},
                     {{"momentum", 0.0}, {"weight_decay", 0.0}}, graph::Phase::update);
  const graph::TensorId c = graph.apply("convolution", "c", {x, w}, one);
  graph.set_results({a, b, c});
  const LayoutReport report = choose_layouts(graph, FakeOracle(), {{"w", kPlain}});
  graph.validate();
  EXPECT_THAT(report.reordered, ElementsAre("w", "w"));
  const auto weights = [&](const char* name) {
    return graph.op(operator_named(graph, name)).inputs[1];
  };
  EXPECT_EQ(weights("a"), weights("b"));
  EXPECT_NE(weights("b"), weights("c"));
  EXPECT_EQ(graph.op(operator_named(graph, "update")).inputs[0], w);
}

TEST(LayoutPass, WishForAnotherLayoutOfAWrittenTensorIsABug) {
  class Stubborn : public FakeOracle {
   public:
    Wish wish(const graph::Graph& graph, const graph::Operator& op) const override {
      Wish wish = FakeOracle::wish(graph, op);
      if (op.type == "sgd_update") wish.inputs.assign(op.inputs.size(), kTurned);
      return wish;
    }
  };
  graph::Graph graph = two_convolutions();
  EXPECT_THROW(choose_layouts(graph, Stubborn()), std::logic_error);
}

TEST(LayoutPass, WishOfTheWrongSizeIsABug) {
  class Short : public LayoutOracle {
   public:
    Wish wish(const graph::Graph&, const graph::Operator&) const override { return {}; }
  };
  graph::Graph graph = two_convolutions();
  EXPECT_THROW(choose_layouts(graph, Short()), std::logic_error);
}

}  // namespace
}  // namespace millrace::passes
