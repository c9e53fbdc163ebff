#include "passes/fusion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph_facts.h"
#include "symbolic.h"

namespace millrace::passes {
namespace {

using testing::ElementsAre;

const graph::ConvolutionOptions kThree = {.channels = 4, .kernel = 3, .padding = 1};

TEST(Fusion, ReluGoesIntoItsProducer) {
  graph::Builder net;
  const graph::Value conv = net.convolution(net.image(2, 3, 8, 8), "conv", kThree);
  const graph::Value norm = net.batch_norm(net.relu(conv), "norm");
  const graph::Value first = net.relu(norm);
  const graph::Value left = net.sigmoid(first);
  const graph::Value right = net.tanh(first);
  const graph::Value sum = net.relu(net.add(left, right));
  const graph::Value last = net.relu(net.linear(net.flatten(sum), "head", {.features = 5}));
  graph::Graph graph = net.take();
  graph.add_result(last.id);
  fuse(graph);
  graph.validate();
  EXPECT_THAT(types_of(graph), ElementsAre("convolution", "batch_norm", "sigmoid", "tanh", "add",
                                           "flatten", "linear"));
  for (const char* type : {"convolution", "batch_norm", "add", "linear"}) {
    EXPECT_TRUE(graph.op(all_of_type(graph, type)[0]).attributes.flag("relu")) << type;
  }
  EXPECT_EQ(graph.op(all_of_type(graph, "linear")[0]).outputs[0], last.id);
  EXPECT_EQ(graph.tensor(first.id).producer, all_of_type(graph, "batch_norm")[0]);
}

TEST(Fusion, OtherActivationsJoinANormWithoutAResidual) {
  graph::Builder net;
  graph::Value x = net.batch_norm(net.convolution(net.image(2, 3, 8, 8), "conv", kThree), "norm");
  const graph::Value bent = net.prelu(x, "slopes");
  const graph::Value capped = net.relu6(net.batch_norm(bent, "capped"));
  const graph::Value sum = net.prelu(net.add(net.batch_norm(capped, "long"), bent), "stays");
  const graph::Value last = net.relu6(net.convolution(sum, "last", kThree));
  graph::Graph graph = net.take();
  graph.add_result(last.id);
  fuse(graph);
  graph.validate();
  EXPECT_THAT(types_of(graph), ElementsAre("convolution", "batch_norm", "batch_norm", "batch_norm",
                                           "prelu", "convolution", "relu6"));
  const graph::Operator& with_slopes = graph.op(graph.order()[1]);
  EXPECT_EQ(with_slopes.attributes.text("bend"), "prelu");
  EXPECT_EQ(graph.tensor(with_slopes.inputs.at(5)).name, "slopes.weight");
  EXPECT_EQ(with_slopes.outputs[0], bent.id);
  EXPECT_EQ(graph.op(graph.order()[2]).attributes.text("bend"), "relu6");
  EXPECT_FALSE(graph.op(graph.order()[3]).attributes.has("bend"));
}

TEST(Fusion, ActivationsWithoutKinksJoinANormToo) {
  for (const auto activation : {&graph::Builder::silu, &graph::Builder::hardswish}) {
    graph::Builder net;
    const graph::Value x = net.batch_norm(net.image(2, 3, 8, 8), "norm");
    const graph::Value bent = (net.*activation)(x);
    graph::Graph graph = net.take();
    const std::string name = graph.op(graph.tensor(bent.id).producer).type;
    graph.add_result(bent.id);
    fuse(graph);
    graph.validate();
    ASSERT_THAT(types_of(graph), ElementsAre("batch_norm"));
    EXPECT_EQ(graph.op(graph.order()[0]).attributes.text("bend"), name);
  }
}

TEST(Fusion, IntermediateWithTwoReadersStays) {
  graph::Builder net;
  const graph::Value conv = net.convolution(net.image(2, 3, 8, 8), "conv", kThree);
  const graph::Value left = net.relu(conv);
  const graph::Value right = net.sigmoid(conv);
  const graph::Value y = net.add(left, right);
  graph::Graph graph = net.take();
  graph.add_result(y.id);
  fuse(graph);
  graph.validate();
  EXPECT_THAT(types_of(graph), ElementsAre("convolution", "relu", "sigmoid", "add"));
  EXPECT_FALSE(graph.op(graph.order()[0]).attributes.flag("relu"));
}

TEST(Fusion, IntermediateThatIsAResultStays) {
  graph::Builder net;
  const graph::Value conv = net.convolution(net.image(2, 3, 8, 8), "conv", kThree);
  const graph::Value relu = net.relu(conv);
  const graph::Value pooled = net.max_pool(relu, {});
  graph::Graph graph = net.take();
  graph.set_results({conv.id, relu.id, pooled.id});
  fuse(graph);
  graph.validate();
  EXPECT_THAT(types_of(graph), ElementsAre("convolution", "relu", "max_pool"));
  EXPECT_FALSE(graph.op(graph.order()[2]).attributes.flag("relu"));
}

TEST(Fusion, AdditionBecomesTheResidualOfTheLongerBranchWhicheverSideItIsOn) {
  for (const bool swapped : {false, true}) {
    graph::Builder net;
    const graph::Value x = net.image(2, 3, 8, 8);
    graph::Value longer = net.convolution(net.relu(net.convolution(x, "a", kThree)), "b", kThree);
    longer = net.batch_norm(longer, "long_norm");
    const graph::Value shorter = net.batch_norm(net.convolution(x, "c", kThree), "short_norm");
    const graph::Value sum = swapped ? net.add(shorter, longer) : net.add(longer, shorter);
    const graph::Value y = net.relu(sum);
    graph::Graph graph = net.take();
    graph.add_result(y.id);
    fuse(graph);
    graph.validate();
    EXPECT_THAT(types_of(graph), ElementsAre("convolution", "convolution", "convolution",
                                             "batch_norm", "batch_norm"));
    const graph::Operator& host = graph.op(graph.order().back());
    EXPECT_EQ(host.name, "long_norm");
    EXPECT_EQ(host.inputs.size(), 6u);
    EXPECT_EQ(host.inputs[5], shorter.id);
    EXPECT_EQ(host.outputs[0], y.id);
    EXPECT_TRUE(host.attributes.flag("residual"));
    EXPECT_TRUE(host.attributes.flag("relu"));
    EXPECT_FALSE(graph.op(graph.order()[3]).attributes.flag("residual"));
  }
}

TEST(Fusion, EqualBranchesFuseIntoTheFirst) {
  graph::Builder net;
  const graph::Value x = net.image(2, 4, 8, 8);
  const graph::Value a = net.batch_norm(x, "first");
  const graph::Value b = net.batch_norm(x, "second");
  const graph::Value y = net.add(a, b);
  graph::Graph graph = net.take();
  graph.add_result(y.id);
  fuse(graph);
  graph.validate();
  EXPECT_EQ(graph.op(graph.order().back()).name, "first");
  EXPECT_EQ(graph.op(graph.order().back()).inputs[5], b.id);
  EXPECT_FALSE(graph.op(graph.order().back()).attributes.flag("relu"));
}

TEST(Fusion, TensorAddedToItselfStays) {
  graph::Builder net;
  const graph::Value a = net.batch_norm(net.image(2, 4, 8, 8), "norm");
  const graph::Value y = net.add(a, a);
  graph::Graph graph = net.take();
  graph.add_result(y.id);
  fuse(graph);
  EXPECT_THAT(types_of(graph), ElementsAre("batch_norm", "add"));
}

TEST(Fusion, ReluMovesFromNormalisationAndConvolutionBelowTheirMaxPool) {
  graph::Builder net;
  graph::Value x = net.convolution(net.image(2, 3, 16, 16), "conv1", kThree);
  x = net.max_pool(net.relu(x), {});
  x = net.batch_norm(net.convolution(x, "conv2", kThree), "norm");
  const graph::Value y = net.max_pool(net.relu(x), {});
  graph::Graph graph = net.take();
  graph.add_result(y.id);
  fuse(graph);
  graph.validate();
  EXPECT_THAT(types_of(graph),
              ElementsAre("convolution", "max_pool", "convolution", "batch_norm", "max_pool"));
  for (graph::OperatorId id : graph.order()) {
    EXPECT_EQ(graph.op(id).attributes.flag("relu"), graph.op(id).type == "max_pool");
  }
}

TEST(Fusion, LoneReluMovesIntoTheMaxPoolThoughItsInputHasOtherReaders) {
  graph::Builder net;
  const graph::Value conv = net.convolution(net.image(2, 3, 8, 8), "conv", kThree);
  const graph::Value pooled = net.max_pool(net.relu(conv), {});
  const graph::Value other = net.sigmoid(conv);
  graph::Graph graph = net.take();
  graph.set_results({pooled.id, other.id});
  fuse(graph);
  graph.validate();
  EXPECT_THAT(types_of(graph), ElementsAre("convolution", "max_pool", "sigmoid"));
  const graph::Operator& pool = graph.op(graph.order()[1]);
  EXPECT_TRUE(pool.attributes.flag("relu"));
  EXPECT_EQ(pool.inputs[0], conv.id);
  EXPECT_FALSE(graph.op(graph.order()[0]).attributes.flag("relu"));
}

TEST(Fusion, ReluReadBesidesTheMaxPoolStays) {
  graph::Builder net;
  const graph::Value relu = net.relu(net.convolution(net.image(2, 3, 8, 8), "conv", kThree));
  const graph::Value pooled = net.max_pool(relu, {});
  const graph::Value other = net.sigmoid(relu);
  graph::Graph graph = net.take();
  graph.set_results({pooled.id, other.id});
  fuse(graph);
  graph.validate();
  EXPECT_TRUE(graph.op(operator_named(graph, "conv")).attributes.flag("relu"));
  EXPECT_FALSE(graph.op(all_of_type(graph, "max_pool")[0]).attributes.flag("relu"));
}

TEST(Fusion, SmallResidualNetwork) {
  graph::Graph graph = small_residual_network();
  const auto values = Symbolic(graph).results();
  const auto buffers = Symbolic(graph).persistent();
  fuse(graph);
  graph.validate();
  EXPECT_EQ(Symbolic(graph).results(), values);
  EXPECT_EQ(Symbolic(graph).persistent(), buffers);
  auto counts = count_types(graph);
  EXPECT_EQ(counts["relu"], 0);
  EXPECT_EQ(counts["add"], 0);
  EXPECT_EQ(counts["batch_norm"], 6);
  EXPECT_EQ(counts["convolution"], 6);
  const graph::Operator& first = graph.op(operator_named(graph, "block1.b_norm"));
  EXPECT_TRUE(first.attributes.flag("residual") && first.attributes.flag("relu"));
  EXPECT_EQ(graph.tensor(first.inputs[5]).name, "block1.short_norm");
  EXPECT_FALSE(graph.op(operator_named(graph, "stem_norm")).attributes.flag("relu"));
}

}  // namespace
}  // namespace millrace::passes
