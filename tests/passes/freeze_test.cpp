#include "passes/freeze.h"

#include <gmock/gmock.h>

#include <set>

#include "base/error.h"
#include "graph_facts.h"
#include "models/models.h"
#include "passes/autodiff.h"
#include "passes/optimizer.h"

namespace millrace::passes {
namespace {

using ::testing::HasSubstr;

// A small network of the usual names, differentiated and updated.
graph::Graph trained_with(const TrainedSettings& settings) {
  models::ModelOptions options = models::default_options("resnet18");
  options.batch = 2;
  options.image = 32;
  options.classes = 5;
  graph::Graph graph = models::build_model("resnet18", options);
  choose_trained(graph, settings);
  add_updates(graph, differentiate(graph, graph.find_tensor("loss")), {});
  graph.validate();
  return graph;
}

std::set<std::string> updated(const graph::Graph& graph) {
  std::set<std::string> names;
  for (const graph::OperatorId id : graph.order()) {
    if (graph.op(id).phase == graph::Phase::update)
      names.insert(graph.tensor(graph.op(id).inputs[0]).name);
  }
  return names;
}

std::string refusal_of(const TrainedSettings& settings) {
  try {
    trained_with(settings);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

int backward_operators(const graph::Graph& graph) {
  int count = 0;
  for (const graph::OperatorId id : graph.order())
    count += graph.op(id).phase == graph::Phase::backward ? 1 : 0;
  return count;
}

TEST(Freeze, OnlyTheLastLayerNeedsNoBackwardPassBehindIt) {
  const graph::Graph graph = trained_with({.train_only = {"fc"}});
  EXPECT_EQ(updated(graph), (std::set<std::string>{"fc.weight", "fc.bias"}));
  for (const graph::OperatorId id : graph.order()) {
    const graph::Operator& op = graph.op(id);
    if (op.phase != graph::Phase::backward) continue;
    EXPECT_EQ(op.type.find("convolution"), std::string::npos) << op.name;
    EXPECT_EQ(op.type.find("batch_norm"), std::string::npos) << op.name;
  }
  EXPECT_EQ(graph.find_tensor("conv1.weight.grad"), graph::kNone);
  EXPECT_EQ(graph.find_tensor("conv1.weight.momentum"), graph::kNone);
  EXPECT_EQ(graph.tensor(graph.find_tensor("conv1.weight")).role, graph::Role::buffer);
}

// What lies before a frozen layer still learns, through it.
TEST(Freeze, GradientsPassThroughFrozenLayers) {
  const graph::Graph whole = trained_with({});
  const graph::Graph graph = trained_with({.freeze = {"layer2"}});
  const std::set<std::string> names = updated(graph);
  EXPECT_TRUE(names.contains("conv1.weight"));
  EXPECT_TRUE(names.contains("layer1.0.conv1.weight"));
  EXPECT_FALSE(names.contains("layer2.0.conv1.weight"));
  EXPECT_TRUE(names.contains("layer3.0.conv1.weight"));
  EXPECT_LT(backward_operators(graph), backward_operators(whole));
}

TEST(Freeze, TheFirstLayersCostNothingBackward) {
  const graph::Graph graph =
      trained_with({.freeze = {"conv1", "bn1", "layer1", "layer2", "layer3"}});
  for (const graph::OperatorId id : graph.order()) {
    const graph::Operator& op = graph.op(id);
    if (op.phase != graph::Phase::backward) continue;
    for (const char* layer : {"conv1/", "layer1.", "layer2.", "layer3."}) {
      EXPECT_FALSE(op.name.starts_with(layer)) << op.name;
    }
  }
}

TEST(Freeze, RatesAreFactors) {
  const graph::Graph graph =
      trained_with({.rates = {{"layer4", 0.5}, {"layer4.1.conv1", 0.1}, {"fc", 10}}});
  const auto rate = [&](const char* name) {
    const graph::Attributes& attributes = graph.op(operator_named(graph, name)).attributes;
    return attributes.has("rate") ? attributes.number("rate") : 1.0;
  };
  EXPECT_EQ(rate("conv1.weight/update"), 1);
  EXPECT_EQ(rate("layer4.0.conv1.weight/update"), 0.5);
  EXPECT_EQ(rate("layer4.1.conv1.weight/update"), 0.05);
  EXPECT_EQ(rate("fc.bias/update"), 10);
}

// ResNet-18 has its stem (two names), eight blocks and the last layer.
TEST(Freeze, LayersDecayFromTheLastToTheFirst) {
  const graph::Graph graph = trained_with({.layer_decay = 0.5});
  const auto rate = [&](const char* name) { return graph.tensor(graph.find_tensor(name)).rate; };
  EXPECT_EQ(rate("fc.weight"), 1);
  EXPECT_EQ(rate("layer4.1.conv1.weight"), 0.5);
  EXPECT_EQ(rate("layer4.0.bn1.weight"), 0.25);
  EXPECT_EQ(rate("layer1.0.conv1.weight"), 1.0 / 256);
  EXPECT_EQ(rate("bn1.weight"), 1.0 / 512);
  EXPECT_EQ(rate("conv1.weight"), 1.0 / 1024);
}

TEST(Freeze, NormsKeepTheirStatisticsScaleAndBias) {
  const graph::Graph graph = trained_with({.freeze_norms = true});
  EXPECT_EQ(graph.tensor(graph.find_tensor("layer1.0.bn1.weight")).role, graph::Role::buffer);
  EXPECT_EQ(graph.tensor(graph.find_tensor("layer1.0.bn1.bias")).role, graph::Role::buffer);
  EXPECT_EQ(graph.tensor(graph.find_tensor("layer1.0.conv1.weight")).role, graph::Role::parameter);
  for (const graph::OperatorId id : graph.order()) {
    const graph::Operator& op = graph.op(id);
    EXPECT_EQ(op.attributes.flag("inference"), op.type == "batch_norm") << op.name;
  }
}

TEST(Freeze, PatternsThatFitNothingAreNamed) {
  EXPECT_THAT(refusal_of({.freeze = {"layr1"}}),
              HasSubstr("freeze 'layr1' fits no layer of the network; did you mean 'layer1'?"));
  EXPECT_THAT(refusal_of({.train_only = {"head"}}), HasSubstr("train_only 'head' fits no layer"));
  EXPECT_THAT(refusal_of({.rates = {{"fcc", 2}}}), HasSubstr("lr_scale 'fcc'"));
  EXPECT_THAT(refusal_of({.freeze = {"*"}}), HasSubstr("leave nothing to train"));
  EXPECT_THAT(refusal_of({.freeze = {"fc"}, .train_only = {"fc"}}), HasSubstr("nothing to train"));
}

}  // namespace
}  // namespace millrace::passes
