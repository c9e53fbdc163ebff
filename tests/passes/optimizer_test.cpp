#include "passes/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "graph_facts.h"
#include "passes/fusion.h"

namespace millrace::passes {
namespace {

using testing::ElementsAre;

graph::Graph trained(const OptimizerSettings& settings) {
  graph::Graph graph = small_residual_network();
  fuse(graph);
  const auto gradients = differentiate(graph, graph.find_tensor("loss"));
  add_updates(graph, gradients, settings);
  graph.validate();
  return graph;
}

std::vector<std::string> input_names(const graph::Graph& graph, const graph::Operator& op) {
  std::vector<std::string> names;
  for (graph::TensorId id : op.inputs) names.push_back(graph.tensor(id).name);
  return names;
}

TEST(Optimizer, SgdGivesEveryParameterItsMomentum) {
  const graph::Graph graph = trained({.momentum = 0.8, .weight_decay = 0.01, .nesterov = true});
  const auto updates = all_of_type(graph, "sgd_update");
  ASSERT_EQ(updates.size(), 20u);
  const graph::Operator& op = graph.op(operator_named(graph, "head.weight/update"));
  EXPECT_THAT(input_names(graph, op),
              ElementsAre("head.weight", "head.weight.momentum", "head.weight.grad"));
  EXPECT_EQ(op.phase, graph::Phase::update);
  EXPECT_EQ(op.attributes.number("momentum"), 0.8);
  EXPECT_EQ(op.attributes.number("weight_decay"), 0.01);
  EXPECT_TRUE(op.attributes.flag("nesterov"));
  EXPECT_FALSE(op.attributes.flag("has_clip"));
  const graph::Tensor& momentum = graph.tensor(op.inputs[1]);
  EXPECT_EQ(momentum.role, graph::Role::optimizer_state);
  EXPECT_EQ(momentum.type, graph.tensor(op.inputs[0]).type);
  EXPECT_EQ(momentum.initializer.kind, graph::Initializer::Kind::constant);
  EXPECT_EQ(momentum.initializer.first, 0);
}

TEST(Optimizer, VectorsAreDecayedOnlyWhenAllAre) {
  for (const bool all : {false, true}) {
    const graph::Graph graph = trained({.weight_decay = 0.01, .decay_all = all});
    for (const char* name : {"head.bias/update", "stem_norm.weight/update"}) {
      const graph::Operator& op = graph.op(operator_named(graph, name));
      EXPECT_EQ(op.attributes.number("weight_decay"), all ? 0.01 : 0.0) << name;
    }
  }
}

TEST(Optimizer, PlainSgdKeepsNoState) {
  const graph::Graph graph = trained({.momentum = 0});
  EXPECT_EQ(all_of_type(graph, "sgd_plain_update").size(), 20u);
  for (graph::TensorId id = 0; id < graph.tensor_count(); ++id) {
    EXPECT_NE(graph.tensor(id).role, graph::Role::optimizer_state);
  }
}

TEST(Optimizer, AdamwKeepsTwoMomentsAndCountsItsUpdates) {
  const graph::Graph graph =
      trained({.name = "adamw", .beta1 = 0.8, .beta2 = 0.99, .epsilon = 1e-6});
  EXPECT_EQ(all_of_type(graph, "adamw_update").size(), 20u);
  const graph::Operator& op = graph.op(operator_named(graph, "stem.weight/update"));
  EXPECT_THAT(input_names(graph, op),
              ElementsAre("stem.weight", "stem.weight.first_moment", "stem.weight.second_moment",
                          "stem.weight.grad", "stem.weight.updates"));
  EXPECT_EQ(op.attributes.number("beta1"), 0.8);
  EXPECT_EQ(op.attributes.number("beta2"), 0.99);
  EXPECT_EQ(op.attributes.number("epsilon"), 1e-6);
}

TEST(Optimizer, LarsLeavesVectorsToSgd) {
  const graph::Graph graph = trained({.name = "lars", .trust = 0.02});
  EXPECT_EQ(all_of_type(graph, "lars_update").size(), 7u);  // six convolutions and the head
  EXPECT_EQ(all_of_type(graph, "sgd_update").size(), 13u);
  EXPECT_EQ(graph.op(operator_named(graph, "stem.weight/update")).attributes.number("trust"), 0.02);
}

TEST(Optimizer, UpdatesStandDirectlyBehindTheLastUseOfParameterAndGradient) {
  const graph::Graph graph = trained({});
  for (graph::OperatorId id : all_of_type(graph, "sgd_update")) {
    const graph::Operator& update = graph.op(id);
    int last = -1;
    for (graph::OperatorId other : graph.order()) {
      if (other == id) continue;
      const graph::Operator& op = graph.op(other);
      for (graph::TensorId tensor : {update.inputs[0], update.inputs[2]}) {
        if (std::count(op.inputs.begin(), op.inputs.end(), tensor) +
                std::count(op.outputs.begin(), op.outputs.end(), tensor) >
            0) {
          last = std::max(last, position_of(graph, other));
        }
      }
    }
    const int place = position_of(graph, id);
    ASSERT_LT(last, place) << update.name;
    for (int i = last + 1; i < place; ++i) {
      EXPECT_EQ(graph.op(graph.order()[static_cast<size_t>(i)]).phase, graph::Phase::update)
          << update.name;
    }
  }
}

TEST(Optimizer, ClippingMeasuresAllGradientsBeforeAnyUpdate) {
  const graph::Graph graph = trained({.clip_norm = 2.5});
  const auto& order = graph.order();
  const size_t first = order.size() - 22;
  EXPECT_EQ(graph.op(order[first]).type, "sum_of_squares");
  EXPECT_EQ(graph.op(order[first]).inputs.size(), 20u);
  const graph::Operator& scale = graph.op(order[first + 1]);
  EXPECT_EQ(scale.type, "clip_scale");
  EXPECT_EQ(scale.attributes.number("max_norm"), 2.5);
  for (size_t i = first + 2; i < order.size(); ++i) {
    const graph::Operator& op = graph.op(order[i]);
    EXPECT_EQ(op.type, "sgd_update");
    EXPECT_TRUE(op.attributes.flag("has_clip"));
    EXPECT_EQ(op.inputs.back(), scale.outputs[0]);
  }
}

TEST(Optimizer, UpdatesStandBehindTheCheckForOverflow) {
  for (const double clip : {0.0, 1.0}) {
    for (const bool accumulate : {false, true}) {
      graph::Graph graph = small_residual_network();
      const auto gradients = differentiate(graph, graph.find_tensor("loss"));
      UpdateOptions options;
      options.check_overflow = true;
      options.accumulate = accumulate;
      add_updates(graph, gradients, {.clip_norm = clip}, options);
      graph.validate();
      const auto checks = all_of_type(graph, "overflow_check");
      ASSERT_EQ(checks.size(), 1u);
      const graph::Operator& check = graph.op(checks[0]);
      EXPECT_EQ(check.phase, graph::Phase::update);
      EXPECT_EQ(check.inputs.size(), gradients.size() + (clip > 0 ? 2 : 1));
      const auto place = [&](graph::OperatorId id) {
        return std::find(graph.order().begin(), graph.order().end(), id) - graph.order().begin();
      };
      const auto updates = all_of_type(graph, "sgd_update");
      EXPECT_EQ(updates.size(), gradients.size());
      for (const graph::OperatorId id : updates) {
        EXPECT_GT(place(id), place(checks[0]));
        EXPECT_EQ(graph.op(id).inputs.back(), graph.find_tensor(kOverflowFlag));
        EXPECT_TRUE(graph.op(id).attributes.flag("has_skip"));
      }
    }
  }
}

}  // namespace
}  // namespace millrace::passes
