#include "passes/norm_folding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph_facts.h"
#include "passes/fusion.h"
#include "passes/inference.h"

namespace millrace::passes {
namespace {

using testing::ElementsAre;

const graph::ConvolutionOptions kThree = {.channels = 3, .kernel = 3, .padding = 1, .bias = false};

std::vector<std::string> names_of(const graph::Graph& graph,
                                  const std::vector<graph::TensorId>& tensors) {
  std::vector<std::string> names;
  for (const graph::TensorId id : tensors) names.push_back(graph.tensor(id).name);
  return names;
}

void fold(graph::Graph& graph) {
  make_inference(graph);
  fuse(graph);
  fold_norms(graph);
  graph.validate();
}

TEST(NormFolding, ANormWithItsResidualAndReluJoinsTheConvolution) {
  graph::Builder net;
  const graph::Value x = net.image(2, 3, 8, 8);
  const graph::Value norm = net.batch_norm(net.convolution(x, "conv", kThree), "norm");
  const graph::Value y = net.relu(net.add(norm, x));
  graph::Graph graph = net.take();
  graph.add_result(y.id);
  fold(graph);
  ASSERT_THAT(types_of(graph), ElementsAre("normalised_convolution"));
  const graph::Operator& op = graph.op(graph.order()[0]);
  EXPECT_THAT(names_of(graph, op.inputs),
              ElementsAre(graph.tensor(x.id).name, "conv.weight", "norm.weight", "norm.bias",
                          "norm.running_mean", "norm.running_var", graph.tensor(x.id).name));
  EXPECT_THAT(op.outputs, ElementsAre(y.id));
  EXPECT_TRUE(op.attributes.flag("relu"));
  EXPECT_TRUE(op.attributes.flag("residual"));
  EXPECT_EQ(op.attributes.integers("padding"), (graph::Shape{1, 1}));
  EXPECT_GT(op.attributes.number("epsilon"), 0);
}

TEST(NormFolding, WhatOthersReadOrWhatLiesBetweenStays) {
  graph::Builder net;
  const graph::Value x = net.image(2, 3, 8, 8);
  const graph::Value read_twice = net.convolution(x, "read_twice", kThree);
  const graph::Value bent = net.relu(net.convolution(x, "bent", kThree));
  graph::ConvolutionOptions biased = kThree;
  biased.bias = true;
  const graph::Value shifted = net.convolution(x, "shifted", biased);
  const graph::Value result = net.convolution(x, "result", kThree);
  graph::Value sum = net.sigmoid(read_twice);
  for (const graph::Value each : {read_twice, bent, shifted, result}) {
    sum = net.tanh(
        net.add(sum, net.sigmoid(net.batch_norm(each, "norm_" + std::to_string(each.id)))));
  }
  graph::Graph graph = net.take();
  graph.set_results({sum.id, result.id});
  fold(graph);
  EXPECT_EQ(all_of_type(graph, "normalised_convolution").size(), 0u);
  EXPECT_EQ(all_of_type(graph, "batch_norm").size(), 4u);
}

TEST(NormFolding, StatisticsOfTheBatchAreNotRunning) {
  graph::Builder net;
  const graph::Value x = net.image(2, 3, 8, 8);
  const graph::Value y = net.batch_norm(net.convolution(x, "conv", kThree), "norm");
  graph::Graph graph = net.take();
  graph.add_result(y.id);
  fold_norms(graph);
  EXPECT_THAT(types_of(graph), ElementsAre("convolution", "batch_norm"));
}

}  // namespace
}  // namespace millrace::passes
