#include "passes/precision.h"

#include <gtest/gtest.h>

#include "graph_facts.h"
#include "passes/autodiff.h"
#include "passes/fusion.h"
#include "passes/rewrite.h"

namespace millrace::passes {
namespace {

graph::DataType type_of(const graph::Graph& graph, std::string_view op, size_t output = 0) {
  return graph.tensor(graph.op(operator_named(graph, op)).outputs.at(output)).type.dtype;
}

graph::DataType input_type(const graph::Graph& graph, std::string_view op, size_t input) {
  return graph.tensor(graph.op(operator_named(graph, op)).inputs.at(input)).type.dtype;
}

graph::Graph lowered(std::vector<std::string> keep = {}) {
  graph::Graph graph = small_residual_network();
  fuse(graph);
  lower_precision(graph, graph::DataType::bf16, keep);
  graph.validate();
  return graph;
}

TEST(Precision, ImagesAreCastOnceAndLogitsAreMadeInFloat32) {
  graph::Graph graph = small_residual_network();
  fuse(graph);
  const PrecisionReport report = lower_precision(graph, graph::DataType::bf16, {});
  graph.validate();
  EXPECT_EQ(report.casts, 1);
  EXPECT_EQ(count_types(graph)["cast"], 1);
  EXPECT_EQ(input_type(graph, "images/bf16", 0), graph::DataType::f32);
  EXPECT_EQ(type_of(graph, "images/bf16"), graph::DataType::bf16);
  for (const char* name : {"stem", "stem_norm", "block1.short", "block2.b_norm"}) {
    EXPECT_EQ(type_of(graph, name), graph::DataType::bf16) << name;
  }
  EXPECT_EQ(input_type(graph, "stem", 1), graph::DataType::f32);    // weights
  EXPECT_EQ(type_of(graph, "stem_norm", 1), graph::DataType::f32);  // statistics
  EXPECT_EQ(input_type(graph, "head", 0), graph::DataType::bf16);
  EXPECT_EQ(type_of(graph, "head"), graph::DataType::f32);
  EXPECT_EQ(graph.tensor(loss_of(graph)).type.dtype, graph::DataType::f32);
}

TEST(Precision, GradientsTakeTheTypeOfTheirTensorAndThoseOfParametersStayFloat32) {
  graph::Graph graph = lowered();
  const auto gradients = differentiate(graph, loss_of(graph));
  graph.validate();
  EXPECT_EQ(gradients.size(), 20u);
  for (const ParameterGradient& pair : gradients) {
    EXPECT_EQ(graph.tensor(pair.parameter).type.dtype, graph::DataType::f32);
    EXPECT_EQ(graph.tensor(pair.gradient).type, graph.tensor(pair.parameter).type);
  }
  EXPECT_EQ(type_of(graph, "block2.a/convolution_backward_data"), graph::DataType::bf16);
  EXPECT_EQ(type_of(graph, "stem_norm/batch_norm_backward"), graph::DataType::bf16);
  // The images' cast has no gradient; that of the logits is the only other one.
  EXPECT_EQ(count_types(graph)["cast"], 2);
}

TEST(Precision, KeptLayersStayFloat32BetweenCasts) {
  const graph::Graph graph = lowered({"block1.b", "stem_norm"});
  EXPECT_EQ(type_of(graph, "block1.b"), graph::DataType::f32);
  EXPECT_EQ(input_type(graph, "block1.b", 0), graph::DataType::f32);
  EXPECT_EQ(type_of(graph, "block1.a"), graph::DataType::bf16);
  EXPECT_EQ(type_of(graph, "stem_norm"), graph::DataType::f32);
  EXPECT_EQ(input_type(graph, "stem_norm", 0), graph::DataType::f32);
  // Behind a float32 addition comes a float32 block until the next convolution.
  EXPECT_EQ(input_type(graph, "block2.a", 0), graph::DataType::bf16);
}

TEST(Precision, AKeptBlockKeepsAllItsLayers) {
  const graph::Graph graph = lowered({"block1", "block2"});
  EXPECT_EQ(type_of(graph, "block1.a"), graph::DataType::f32);
  EXPECT_EQ(type_of(graph, "block2.b"), graph::DataType::f32);
  EXPECT_EQ(type_of(graph, "stem"), graph::DataType::bf16);
}

TEST(Precision, OneCastServesAllReaders) {
  graph::Builder net;
  graph::Value x = net.convolution(net.image(2, 3, 8, 8), "first", {.channels = 4});
  graph::Value a = net.convolution(x, "a", {.channels = 4});
  graph::Value b = net.convolution(x, "b", {.channels = 4});
  net.classify(net.linear(net.flatten(net.add(a, b)), "head", {.features = 3}));
  graph::Graph graph = net.take();
  const PrecisionReport report = lower_precision(graph, graph::DataType::bf16, {"first", "a"});
  graph.validate();
  EXPECT_EQ(type_of(graph, "first"), graph::DataType::f32);
  EXPECT_EQ(type_of(graph, "b"), graph::DataType::bf16);
  EXPECT_EQ(report.casts, 2);  // of what `first` made for b, and of what `a` made for the sum
}

TEST(Precision, ResultsKeepTheirNamesAndAreFloat32) {
  graph::Builder net;
  graph::Value x = net.convolution(net.image(2, 3, 8, 8), "features", {.channels = 4});
  net.classify(net.linear(net.flatten(x), "head", {.features = 3}));
  graph::Graph graph = net.take();
  graph.add_result(graph.find_tensor("features"));
  lower_precision(graph, graph::DataType::bf16, {});
  graph.validate();
  const graph::TensorId features = graph.find_tensor("features");
  EXPECT_EQ(graph.tensor(features).type.dtype, graph::DataType::f32);
  EXPECT_TRUE(result_flags(graph)[static_cast<size_t>(features)]);
  EXPECT_EQ(graph.op(graph.tensor(features).producer).type, "cast");
}

TEST(Precision, RowsAreNormalisedInFloat32) {
  graph::Builder net;
  graph::Value x = net.convolution(net.image(4, 3, 8, 8), "features", {.channels = 4});
  x = net.batch_norm(net.linear(net.flatten(x), "embed", {.features = 6}), "embedding_norm");
  net.classify(net.linear(x, "head", {.features = 3}));
  graph::Graph graph = net.take();
  lower_precision(graph, graph::DataType::bf16, {});
  graph.validate();
  EXPECT_EQ(type_of(graph, "embed"), graph::DataType::f32);
  EXPECT_EQ(type_of(graph, "embedding_norm"), graph::DataType::f32);
}

TEST(Precision, AHeadReadsAndUpdatesCentresOfSixteenBitsThemselves) {
  graph::Builder net;
  const graph::Value x = net.convolution(net.image(4, 3, 8, 8), "features", {.channels = 4});
  net.margin_head(net.linear(net.flatten(x), "embed", {.features = 8}),
                  {.classes = 6, .storage = graph::DataType::bf16});
  graph::Graph graph = net.take();
  lower_precision(graph, graph::DataType::bf16, {});
  differentiate(graph, loss_of(graph));
  graph.validate();
  const graph::TensorId centres = graph.find_tensor("head.centres");
  ASSERT_NE(centres, graph::kNone);
  for (const char* type : {"margin_head_statistics", "margin_head_update"}) {
    const std::vector<graph::OperatorId> found = all_of_type(graph, type);
    ASSERT_EQ(found.size(), 1u) << type;
    const std::vector<graph::TensorId>& inputs = graph.op(found[0]).inputs;
    EXPECT_NE(std::find(inputs.begin(), inputs.end(), centres), inputs.end()) << type;
  }
}

}  // namespace
}  // namespace millrace::passes
