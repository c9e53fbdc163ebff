#include "passes/precision.h"

#include <gtest/gtest.h>

#include "graph_facts.h"
#include "passes/autodiff.h"
#include "passes/fusion.h"
#include "passes/rewrite.h"

namespace millrace {
namespace {

DataType type_of(const Graph& graph, std::string_view op, size_t output = 0) {
  return graph.tensor(graph.op(operator_named(graph, op)).outputs.at(output)).type.dtype;
}

DataType input_type(const Graph& graph, std::string_view op, size_t input) {
  return graph.tensor(graph.op(operator_named(graph, op)).inputs.at(input)).type.dtype;
}

Graph lowered(std::vector<std::string> keep = {}) {
  Graph graph = small_residual_network();
  fuse(graph);
  lower_precision(graph, DataType::bf16, keep);
  graph.validate();
  return graph;
}

TEST(Precision, ImagesAreCastOnceAndLogitsAreMadeInFloat32) {
  Graph graph = small_residual_network();
  fuse(graph);
  const PrecisionReport report = lower_precision(graph, DataType::bf16, {});
  graph.validate();
  EXPECT_EQ(report.casts, 1);
  EXPECT_EQ(count_types(graph)["cast"], 1);
  EXPECT_EQ(input_type(graph, "images/bf16", 0), DataType::f32);
  EXPECT_EQ(type_of(graph, "images/bf16"), DataType::bf16);
  for (const char* name : {"stem", "stem_norm", "block1.short", "block2.b_norm"}) {
    EXPECT_EQ(type_of(graph, name), DataType::bf16) << name;
  }
  EXPECT_EQ(input_type(graph, "stem", 1), DataType::f32);    // weights
  EXPECT_EQ(type_of(graph, "stem_norm", 1), DataType::f32);  // statistics
  EXPECT_EQ(input_type(graph, "head", 0), DataType::bf16);
  EXPECT_EQ(type_of(graph, "head"), DataType::f32);
  EXPECT_EQ(graph.tensor(loss_of(graph)).type.dtype, DataType::f32);
}

TEST(Precision, GradientsTakeTheTypeOfTheirTensorAndThoseOfParametersStayFloat32) {
  Graph graph = lowered();
  const auto gradients = differentiate(graph, loss_of(graph));
  graph.validate();
  EXPECT_EQ(gradients.size(), 20u);
  for (const ParameterGradient& pair : gradients) {
    EXPECT_EQ(graph.tensor(pair.parameter).type.dtype, DataType::f32);
    EXPECT_EQ(graph.tensor(pair.gradient).type, graph.tensor(pair.parameter).type);
  }
  EXPECT_EQ(type_of(graph, "block2.a/convolution_backward_data"), DataType::bf16);
  EXPECT_EQ(type_of(graph, "stem_norm/batch_norm_backward"), DataType::bf16);
  // The images' cast has no gradient; that of the logits is the only other one.
  EXPECT_EQ(count_types(graph)["cast"], 2);
}

TEST(Precision, KeptLayersStayFloat32BetweenCasts) {
  const Graph graph = lowered({"block1.b", "stem_norm"});
  EXPECT_EQ(type_of(graph, "block1.b"), DataType::f32);
  EXPECT_EQ(input_type(graph, "block1.b", 0), DataType::f32);
  EXPECT_EQ(type_of(graph, "block1.a"), DataType::bf16);
  EXPECT_EQ(type_of(graph, "stem_norm"), DataType::f32);
  EXPECT_EQ(input_type(graph, "stem_norm", 0), DataType::f32);
  // Behind a float32 addition comes a float32 block until the next convolution.
  EXPECT_EQ(input_type(graph, "block2.a", 0), DataType::bf16);
}

TEST(Precision, AKeptBlockKeepsAllItsLayers) {
  const Graph graph = lowered({"block1", "block2"});
  EXPECT_EQ(type_of(graph, "block1.a"), DataType::f32);
  EXPECT_EQ(type_of(graph, "block2.b"), DataType::f32);
  EXPECT_EQ(type_of(graph, "stem"), DataType::bf16);
}

TEST(Precision, OneCastServesAllReaders) {
  Builder net;
  Value x = net.convolution(net.image(2, 3, 8, 8), "first", {.channels = 4});
  Value a = net.convolution(x, "a", {.channels = 4});
  Value b = net.convolution(x, "b", {.channels = 4});
  net.classify(net.linear(net.flatten(net.add(a, b)), "head", {.features = 3}));
  Graph graph = net.take();
  const PrecisionReport report = lower_precision(graph, DataType::bf16, {"first", "a"});
  graph.validate();
  EXPECT_EQ(type_of(graph, "first"), DataType::f32);
  EXPECT_EQ(type_of(graph, "b"), DataType::bf16);
  EXPECT_EQ(report.casts, 2);  // of what `first` made for b, and of what `a` made for the sum
}

TEST(Precision, ResultsKeepTheirNamesAndAreFloat32) {
  Builder net;
  Value x = net.convolution(net.image(2, 3, 8, 8), "features", {.channels = 4});
  net.classify(net.linear(net.flatten(x), "head", {.features = 3}));
  Graph graph = net.take();
  graph.add_result(graph.find_tensor("features"));
  lower_precision(graph, DataType::bf16, {});
  graph.validate();
  const TensorId features = graph.find_tensor("features");
  EXPECT_EQ(graph.tensor(features).type.dtype, DataType::f32);
  EXPECT_TRUE(result_flags(graph)[static_cast<size_t>(features)]);
  EXPECT_EQ(graph.op(graph.tensor(features).producer).type, "cast");
}

TEST(Precision, RowsAreNormalisedInFloat32) {
  Builder net;
  Value x = net.convolution(net.image(4, 3, 8, 8), "features", {.channels = 4});
  x = net.batch_norm(net.linear(net.flatten(x), "embed", {.features = 6}), "embedding_norm");
  net.classify(net.linear(x, "head", {.features = 3}));
  Graph graph = net.take();
  lower_precision(graph, DataType::bf16, {});
  graph.validate();
  EXPECT_EQ(type_of(graph, "embed"), DataType::f32);
  EXPECT_EQ(type_of(graph, "embedding_norm"), DataType::f32);
}

TEST(Precision, AHeadReadsAndUpdatesCentresOfSixteenBitsThemselves) {
  Builder net;
  const Value x = net.convolution(net.image(4, 3, 8, 8), "features", {.channels = 4});
  net.margin_head(net.linear(net.flatten(x), "embed", {.features = 8}),
                  {.classes = 6, .storage = DataType::bf16});
  Graph graph = net.take();
  lower_precision(graph, DataType::bf16, {});
  differentiate(graph, loss_of(graph));
  graph.validate();
  const TensorId centres = graph.find_tensor("head.centres");
  ASSERT_NE(centres, kNone);
  for (const char* type : {"margin_head_statistics", "margin_head_update"}) {
    const std::vector<OperatorId> found = all_of_type(graph, type);
    ASSERT_EQ(found.size(), 1u) << type;
    const std::vector<TensorId>& inputs = graph.op(found[0]).inputs;
    EXPECT_NE(std::find(inputs.begin(), inputs.end(), centres), inputs.end()) << type;
  }
}

}  // namespace
}  // namespace millrace
