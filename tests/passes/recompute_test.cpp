#include "passes/recompute.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>

#include "graph_facts.h"
#include "models/models.h"
#include "passes/autodiff.h"
#include "passes/fusion.h"
#include "passes/gradient_fusion.h"
#include "passes/in_place.h"
#include "passes/liveness.h"
#include "passes/optimizer.h"
#include "passes/recompute_plan.h"
#include "storage_check.h"
#include "symbolic.h"

namespace millrace::passes {
namespace {

void train(graph::Graph& graph) {
  fuse(graph);
  const auto gradients = differentiate(graph, graph.find_tensor("loss"));
  fuse_gradients(graph);
  add_updates(graph, gradients, {});
}

int64_t peak_of(const graph::Graph& graph) { return peak_bytes(lifetimes(graph)); }

// Three times convolution, norm and relu; every image tensor takes kLayer bytes.
constexpr int64_t kLayer = 2 * 4 * 8 * 8 * 4;
graph::Graph three_layers() {
  graph::Builder net;
  graph::Value x = net.image(2, 4, 8, 8);
  for (const char* number : {"1", "2", "3"}) {
    x = net.convolution(x, std::string("conv") + number, {.channels = 4});
    x = net.relu(net.batch_norm(x, std::string("norm") + number));
  }
  net.classify(net.linear(net.flatten(net.global_average_pool(x)), "head", {.features = 10}));
  graph::Graph graph = net.take();
  train(graph);
  return graph;
}

// No backward operator reads the original of a tensor that has a clone, no forward operator
// reads a clone, and each clone stands directly before an operator that reads it.
void expect_clones_used(const graph::Graph& graph) {
  const auto readers = graph.consumers();
  for (size_t i = 0; i < graph.order().size(); ++i) {
    const graph::Operator& clone = graph.op(graph.order()[i]);
    if (!clone.name.ends_with("/again")) continue;
    EXPECT_EQ(clone.phase, graph::Phase::backward);
    EXPECT_NE(clone.type, "batch_norm");
    const std::string name = clone.name.substr(0, clone.name.size() - 6);
    const graph::Operator& original = graph.op(operator_named(graph, name));
    for (graph::OperatorId reader : readers[static_cast<size_t>(original.outputs[0])]) {
      EXPECT_EQ(graph.op(reader).phase, graph::Phase::forward) << graph.op(reader).name;
    }
    const auto& clone_readers = readers[static_cast<size_t>(clone.outputs[0])];
    ASSERT_FALSE(clone_readers.empty()) << clone.name;
    for (graph::OperatorId reader : clone_readers)
      EXPECT_NE(graph.op(reader).phase, graph::Phase::forward);
    // Only clones for the same reader may stand in between.
    const int first = position_of(graph, clone_readers[0]);
    for (int between = static_cast<int>(i) + 1; between < first; ++between) {
      EXPECT_TRUE(graph.op(graph.order()[static_cast<size_t>(between)]).name.ends_with("/again"));
    }
  }
}

TEST(Recompute, ChainByHand) {
  graph::Graph graph = three_layers();
  const int64_t before = peak_of(graph);
  const Symbolic values(graph);
  EXPECT_EQ(recompute(graph, RecomputePolicy::cheap).clones, 2);
  graph.validate();
  EXPECT_EQ(Symbolic(graph).persistent(), values.persistent());
  // The peak is at the last norm's backward: three convolutions' outputs, the gradient before
  // and after it, and the outputs of the first two relus, which are no longer kept.
  EXPECT_GE(before, 7 * kLayer);
  EXPECT_LT(before, 8 * kLayer);
  EXPECT_EQ(before - peak_of(graph), 2 * kLayer);
  expect_clones_used(graph);

  const graph::Operator& clone = graph.op(operator_named(graph, "norm2/again"));
  const graph::Operator& original = graph.op(operator_named(graph, "norm2"));
  EXPECT_EQ(clone.type, "batch_norm_apply");
  EXPECT_EQ(clone.attributes, original.attributes);
  EXPECT_EQ(graph.op(operator_named(graph, "conv3/convolution_backward_weights")).inputs[0],
            clone.outputs[0]);
  EXPECT_EQ(position_of(graph, operator_named(graph, "norm2/again")) + 1,
            position_of(graph, operator_named(graph, "conv3/convolution_backward_weights")));
}

TEST(Recompute, NoneChangesNothing) {
  graph::Graph graph = three_layers();
  const std::string text = graph::to_text(graph);
  EXPECT_EQ(recompute(graph, RecomputePolicy::none).clones, 0);
  EXPECT_EQ(graph::to_text(graph), text);
}

TEST(Recompute, AutomaticUsesTheBudget) {
  const auto clones = [](int64_t budget) {
    graph::Graph graph = three_layers();
    const int count = recompute(graph, RecomputePolicy::automatic, {.budget_bytes = budget}).clones;
    graph.validate();
    return count;
  };
  // In place, keeping all takes six layers, keeping one five, keeping none four; and some change.
  EXPECT_EQ(clones(0), 2);
  EXPECT_EQ(clones(4 * kLayer), 2);
  EXPECT_EQ(clones(5 * kLayer + kLayer / 2), 1);
  EXPECT_EQ(clones(6 * kLayer + kLayer / 2), 0);
}

TEST(Recompute, AutomaticKeepsWhatDoesNotRaiseThePeak) {
  // Two wide layers set the peak of three wide tensors: both convolutions' outputs and the second
  // norm's output or its gradient. The first norm's output would be a fourth; the second norm's
  // is there at the peak in any case, and the narrow layer's is small beside it.
  graph::Builder net;
  graph::Value x = net.convolution(net.image(2, 4, 16, 16), "wide", {.channels = 32});
  x = net.relu(net.batch_norm(x, "wide_norm"));
  x = net.convolution(x, "wide2", {.channels = 32});
  x = net.relu(net.batch_norm(x, "wide2_norm"));
  x = net.convolution(x, "narrow", {.channels = 1, .kernel = 4, .stride = 4});
  x = net.relu(net.batch_norm(x, "narrow_norm"));
  x = net.convolution(x, "narrow2", {.channels = 1});
  net.classify(net.linear(net.flatten(x), "head", {.features = 10}));
  graph::Graph graph = net.take();
  train(graph);
  graph::Graph all = graph;
  EXPECT_EQ(recompute(all, RecomputePolicy::cheap).clones, 3);
  EXPECT_EQ(recompute(graph, RecomputePolicy::automatic).clones, 1);
  EXPECT_EQ(graph.op(all_of_type(graph, "batch_norm_apply").at(0)).name, "wide_norm/again");
  assign_in_place(graph);
  assign_in_place(all);
  EXPECT_LE(peak_of(graph), peak_of(all));
  constexpr int64_t kWide = 2 * 32 * 16 * 16 * 4;
  EXPECT_EQ(peak_of(graph) / kWide, 3);
}

TEST(Recompute, ClonesReadClones) {
  graph::Builder net;
  graph::Value x = net.image(2, 4, 8, 8);
  std::vector<graph::TensorId> activated;
  for (const char* number : {"1", "2", "3"}) {
    x = net.convolution(x, std::string("conv") + number, {.channels = 4});
    x = net.silu(net.relu(net.batch_norm(x, std::string("norm") + number)));
    activated.push_back(x.id);
  }
  net.classify(net.linear(net.flatten(net.global_average_pool(x)), "head", {.features = 10}));
  graph::Graph graph = net.take();
  const std::string second = graph.op(graph.tensor(activated[1]).producer).name;
  train(graph);
  const Symbolic values(graph);
  // Two activations' outputs for the convolutions behind them, three norms' for the activations.
  EXPECT_EQ(recompute(graph, RecomputePolicy::cheap).clones, 5);
  graph.validate();
  EXPECT_EQ(Symbolic(graph).persistent(), values.persistent());
  expect_clones_used(graph);
  const graph::TensorId norm = graph.op(operator_named(graph, "norm2/again")).outputs[0];
  EXPECT_EQ(graph.op(operator_named(graph, second + "/again")).inputs[0], norm);
  EXPECT_EQ(graph.op(operator_named(graph, second + "/silu_backward")).inputs[1], norm);
}

TEST(Recompute, InputsOnlyTheCloneNeedsAreRecomputedToo) {
  graph::Graph graph = small_residual_network();
  train(graph);
  graph::Graph plain = graph;
  ASSERT_GT(recompute(graph, RecomputePolicy::cheap).clones, 0);
  graph.validate();
  EXPECT_EQ(Symbolic(graph).persistent(), Symbolic(plain).persistent());
  expect_clones_used(graph);
  // Nobody reads the short cut's norm in the backward pass but the clone of the block's end.
  const graph::Operator& block = graph.op(operator_named(graph, "block1.b_norm/again"));
  EXPECT_EQ(block.inputs.back(),
            graph.op(operator_named(graph, "block1.short_norm/again")).outputs[0]);
}

TEST(Recompute, NothingIsDoneWhereItsInputWouldHaveToBeKeptInstead) {
  // A sigmoid's backward reads its output; to make that again the convolution's output, which
  // nobody else needs, would have to stay.
  graph::Builder net;
  graph::Value x = net.image(2, 4, 8, 8);
  for (const char* name : {"a", "b", "c"}) {
    x = net.sigmoid(net.convolution(x, name, {.channels = 4}));
  }
  net.classify(net.linear(net.flatten(x), "head", {.features = 10}));
  graph::Graph graph = net.take();
  train(graph);
  EXPECT_EQ(recompute(graph, RecomputePolicy::cheap).clones, 0);
  EXPECT_EQ(recompute(graph, RecomputePolicy::automatic).clones, 0);
}

TEST(Recompute, NotBehindAnUpdateOfItsInputs) {
  for (const bool update_first : {false, true}) {
    graph::Graph graph;
    const auto tensor = [&](const char* name, graph::Shape shape, graph::Role role) {
      graph::Tensor made;
      made.name = name;
      made.type.shape = std::move(shape);
      made.role = role;
      return graph.add_tensor(made);
    };
    const graph::TensorId x = tensor("x", {2, 4, 8, 8}, graph::Role::input);
    const graph::TensorId w = tensor("w", {4}, graph::Role::parameter);
    const graph::TensorId g = tensor("g", {4}, graph::Role::input);
    const graph::TensorId p = graph.apply("prelu", "p", {x, w});
    const graph::TensorId q = graph.apply("tanh", "q", {x});
    const graph::TensorId r = graph.apply("global_average_pool", "r", {q});
    const graph::TensorId s =
        graph.apply("global_average_pool_backward", "s", {r},
                    {{"input_shape", graph::Shape{2, 4, 8, 8}}}, graph::Phase::backward);
    const graph::Attributes settings = {{"momentum", 0.0}, {"weight_decay", 0.0}};
    const auto update = [&] {
      graph.add_operator("sgd_plain_update", "update", {w, g}, settings, graph::Phase::update);
    };
    if (update_first) update();
    const graph::TensorId pool =
        graph.apply("global_average_pool", "pool", {s}, {}, graph::Phase::backward);
    const graph::TensorId last =
        graph.apply("global_average_pool", "last", {p}, {}, graph::Phase::backward);
    if (!update_first) update();
    graph.set_results({pool, last});
    EXPECT_EQ(recompute(graph, RecomputePolicy::cheap).clones, update_first ? 0 : 1);
    graph.validate();
  }
}

TEST(Recompute, PlannedPeakIsThePeakOfTheFinishedGraph) {
  for (const char* model : {"alexnet", "vgg16_bn", "resnet18", "resnet50"}) {
    graph::Graph kept = models::build_model(model, {.batch = 16});
    train(kept);
    graph::Graph all = kept;
    const RecomputePlanner planner(kept);
    const int64_t planned_none = planner.peak(planner.none());
    const int64_t planned_all = planner.peak(planner.all());
    if (recompute(all, RecomputePolicy::cheap).clones > 0) {
      assign_in_place(all);
      EXPECT_EQ(peak_of(all), planned_all) << model;
    }
    assign_in_place(kept);
    EXPECT_EQ(peak_of(kept), planned_none) << model;
  }
}

TEST(Recompute, Resnet50FitsWhereItDidNot) {
  graph::Graph graph = models::build_model("resnet50", {.batch = 64});
  train(graph);
  graph::Graph kept = graph;
  assign_in_place(kept);
  EXPECT_GT(peak_of(kept), 5'000'000'000);
  graph::Graph all = graph;
  const int most = recompute(all, RecomputePolicy::cheap).clones;
  const int some = recompute(graph, RecomputePolicy::automatic).clones;
  graph.validate();
  EXPECT_LE(some, most);
  EXPECT_GT(some, 20);
  EXPECT_EQ(Symbolic(graph).persistent(), Symbolic(kept).persistent());
  EXPECT_EQ(Symbolic(all).persistent(), Symbolic(kept).persistent());
  expect_clones_used(graph);
  EXPECT_LT(peak_of(graph), 3'400'000'000);
  assign_in_place(graph);
  assign_in_place(all);
  EXPECT_EQ(storage_fault(graph), "");
  EXPECT_LT(peak_of(graph), 3'300'000'000);
  EXPECT_LE(peak_of(graph), peak_of(all));
}

TEST(Recompute, Resnet152TakesLessThanASecond) {
  graph::Graph graph = models::build_model("resnet152", {.batch = 64});
  train(graph);
  const std::clock_t start = std::clock();
  EXPECT_GT(recompute(graph, RecomputePolicy::automatic).clones, 50);
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  EXPECT_LT(seconds, 1.0);
  graph.validate();
}

}  // namespace
}  // namespace millrace::passes
