// All passes together on the networks that users train.
#include "models/models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph_facts.h"
#include "passes/autodiff.h"
#include "passes/fusion.h"
#include "passes/gradient_fusion.h"
#include "passes/in_place.h"
#include "passes/inference.h"
#include "passes/layout.h"
#include "passes/liveness.h"
#include "passes/optimizer.h"
#include "passes/recompute.h"
#include "storage_check.h"
#include "symbolic.h"

namespace millrace::passes {
namespace {

int with_flag(const graph::Graph& graph, const char* type, const char* flag) {
  int count = 0;
  for (graph::OperatorId id : all_of_type(graph, type)) count += graph.op(id).attributes.flag(flag);
  return count;
}

graph::Graph trained(const char* model) {
  graph::Graph graph = models::build_model(model, {.batch = 2});
  const auto values = Symbolic(graph).results();
  fuse(graph);
  graph.validate();
  EXPECT_EQ(Symbolic(graph).results(), values);
  const auto gradients = differentiate(graph, graph.find_tensor("loss"));
  graph.validate();
  graph::Graph unfused = graph;
  fuse_gradients(graph);
  add_updates(graph, gradients, {});
  graph.validate();
  add_updates(unfused, gradients, {});
  EXPECT_EQ(Symbolic(graph).persistent(), Symbolic(unfused).persistent());
  return graph;
}

TEST(Models, Resnet18) {
  graph::Graph graph = trained("resnet18");
  auto counts = count_types(graph);
  EXPECT_EQ(counts["relu"], 0);
  EXPECT_EQ(counts["add"], 0);
  EXPECT_EQ(counts["convolution"], 20);
  EXPECT_EQ(counts["batch_norm"], 20);
  EXPECT_EQ(with_flag(graph, "batch_norm", "residual"), 8);
  EXPECT_EQ(with_flag(graph, "batch_norm", "relu"), 16);  // not the stem, not the short cuts
  EXPECT_EQ(with_flag(graph, "max_pool", "relu"), 1);
  EXPECT_EQ(counts["convolution_backward_weights"], 20);
  EXPECT_EQ(counts["convolution_backward_data"], 19);
  EXPECT_EQ(counts["add_relu_backward"], 8);
  EXPECT_EQ(counts["relu_backward"], 1);
  EXPECT_EQ(counts["sgd_update"], 20 + 2 * 20 + 2);
}

TEST(Models, Resnet50) {
  graph::Graph graph = trained("resnet50");
  auto counts = count_types(graph);
  EXPECT_EQ(counts["relu"], 0);
  EXPECT_EQ(counts["add"], 0);
  EXPECT_EQ(counts["convolution"], 53);
  EXPECT_EQ(counts["batch_norm"], 53);
  EXPECT_EQ(with_flag(graph, "batch_norm", "residual"), 16);
  EXPECT_EQ(with_flag(graph, "batch_norm", "relu"), 48);
  EXPECT_EQ(counts["add_relu_backward"], 16);
  EXPECT_EQ(counts["relu_backward"], 1);
  EXPECT_EQ(counts["sgd_update"], 53 + 2 * 53 + 2);
  // Where the short cut has a norm of its own, the long branch carries the sum.
  const graph::Operator& block = graph.op(operator_named(graph, "layer1.0.bn3"));
  EXPECT_EQ(graph.tensor(block.inputs.at(5)).name, "layer1.0.downsample.1");
}

TEST(Models, Vgg16) {
  graph::Graph graph = trained("vgg16");
  auto counts = count_types(graph);
  EXPECT_EQ(counts["relu"], 0);
  EXPECT_EQ(counts["convolution"], 13);
  EXPECT_EQ(with_flag(graph, "convolution", "relu"), 8);
  EXPECT_EQ(with_flag(graph, "max_pool", "relu"), 5);
  EXPECT_EQ(with_flag(graph, "linear", "relu"), 2);
  EXPECT_EQ(counts["dropout"], 2);
  EXPECT_EQ(counts["dropout_backward"], 2);
  EXPECT_EQ(counts["relu_backward"], 15);
  EXPECT_EQ(counts["sgd_update"], 32);
}

TEST(Models, Alexnet) {
  graph::Graph graph = trained("alexnet");
  auto counts = count_types(graph);
  EXPECT_EQ(counts["relu"], 0);
  EXPECT_EQ(counts["convolution"], 5);
  EXPECT_EQ(with_flag(graph, "convolution", "relu"), 2);
  EXPECT_EQ(with_flag(graph, "max_pool", "relu"), 3);
  EXPECT_EQ(with_flag(graph, "linear", "relu"), 2);
  EXPECT_EQ(counts["sgd_update"], 16);
}

TEST(Models, InferenceHasNoDropoutAndWritesNothing) {
  for (const char* model : {"alexnet", "vgg16", "resnet18", "resnet50"}) {
    graph::Graph graph = models::build_model(model, {.batch = 2});
    make_inference(graph);
    fuse(graph);
    graph.validate();
    EXPECT_EQ(count_types(graph).count("dropout"), 0u) << model;
    EXPECT_EQ(with_flag(graph, "batch_norm", "inference"),
              static_cast<int>(all_of_type(graph, "batch_norm").size()));
    auto before = Symbolic(models::build_model(model, {.batch = 2})).persistent();
    auto after = Symbolic(graph).persistent();
    for (const auto& [name, value] : after) {
      EXPECT_EQ(value == before[name], name.find("running") == std::string::npos) << name;
    }
  }
}

// Convolutions and what follows them in channel blocks of eight, all else plain.
class Blocks : public LayoutOracle {
 public:
  Wish wish(const graph::Graph& graph, const graph::Operator& op) const override {
    const auto is_image = [&](graph::TensorId id) {
      return graph.tensor(id).type.shape.size() == 4;
    };
    Wish wish;
    for (graph::TensorId id : op.inputs) wish.inputs.push_back(layout(graph, op, id, is_image(id)));
    for (graph::TensorId id : op.outputs)
      wish.outputs.push_back(layout(graph, op, id, is_image(id)));
    return wish;
  }

 private:
  static graph::Layout layout(const graph::Graph& graph, const graph::Operator& op,
                              graph::TensorId id, bool image) {
    if (!image || op.phase == graph::Phase::update) return {};
    const graph::Tensor& tensor = graph.tensor(id);
    if (tensor.role == graph::Role::parameter || tensor.role == graph::Role::gradient) return {};
    return graph::Layout("aBcd8b");
  }
};

TEST(Models, AllPassesKeepTheValuesAndOverwriteNothing) {
  for (const char* model : {"alexnet", "vgg16", "resnet18", "resnet50"}) {
    graph::Graph graph = trained(model);
    const auto values = Symbolic(graph).persistent();
    const auto results = Symbolic(graph).results();
    recompute(graph, RecomputePolicy::automatic);
    graph.validate();
    const LayoutReport report = choose_layouts(graph, Blocks());
    graph.validate();
    EXPECT_EQ(report.reorders, static_cast<int>(all_of_type(graph, "reorder").size()));
    // Into flatten and out of its gradient.
    EXPECT_EQ(report.reorders, 2) << model << testing::PrintToString(report.reordered);
    const int64_t before = peak_bytes(lifetimes(graph));
    EXPECT_GT(assign_in_place(graph), 0);
    graph.validate();
    EXPECT_LE(peak_bytes(lifetimes(graph)), before) << model;
    EXPECT_EQ(storage_fault(graph), "") << model;
    EXPECT_EQ(Symbolic(graph).persistent(), values) << model;
    EXPECT_EQ(Symbolic(graph).results(), results) << model;
  }
}

}  // namespace
}  // namespace millrace::passes
