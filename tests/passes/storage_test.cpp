#include "passes/storage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "graph/operator_definition.h"
#include "graph_facts.h"
#include "passes/autodiff.h"
#include "passes/fusion.h"
#include "passes/gradient_fusion.h"
#include "passes/in_place.h"
#include "passes/kept_layers.h"
#include "passes/liveness.h"
#include "passes/optimizer.h"
#include "passes/recompute.h"
#include "storage_check.h"

namespace millrace::passes {
namespace {

graph::Graph training_graph(RecomputePolicy policy, const PrecisionSettings* precision = nullptr) {
  graph::Graph graph = small_residual_network();
  fuse(graph);
  const auto gradients = differentiate(graph, graph.find_tensor("loss"));
  fuse_gradients(graph);
  add_updates(graph, gradients, {});
  RecomputeOptions options;
  if (precision != nullptr) options.storable = storable_tensors(graph, *precision, false);
  recompute(graph, policy, options);
  return graph;
}

PrecisionSettings half(graph::DataType type = graph::DataType::f16) { return {.type = type}; }

bool is_narrow(const graph::Graph& graph, const graph::Operator& op) {
  return op.type == "cast" && graph.tensor(op.outputs[0]).type.dtype != graph::DataType::f32;
}

bool is_widen(const graph::Graph& graph, const graph::Operator& op) {
  return op.type == "cast" && graph.tensor(op.outputs[0]).type.dtype == graph::DataType::f32;
}

bool takes_16_bits(const graph::Graph& graph, const graph::Operator& op, size_t input) {
  const std::vector<int>& stored = graph::definition_of(op.type).stored_inputs;
  return is_widen(graph, op) ||
         std::find(stored.begin(), stored.end(), static_cast<int>(input)) != stored.end();
}

// Everything that a backward operator reads and that a forward operator made is in 16 bits, unless
// it is small; only those who can read 16 bits do.
void expect_stored(const graph::Graph& graph, graph::DataType type) {
  for (graph::OperatorId id : graph.order()) {
    const graph::Operator& op = graph.op(id);
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      const graph::Tensor& input = graph.tensor(op.inputs[i]);
      if (input.type.dtype == type) {
        EXPECT_TRUE(takes_16_bits(graph, op, i)) << op.name << " reads " << input.name;
        continue;
      }
      const bool saved = op.phase == graph::Phase::backward && input.producer != graph::kNone &&
                         graph.op(input.producer).phase == graph::Phase::forward &&
                         input.type.dtype == graph::DataType::f32;
      if (saved) {
        EXPECT_LT(input.type.elements(), 4096) << op.name << " reads " << input.name;
      }
    }
  }
}

TEST(Storage, WhatTheBackwardPassReadsIsIn16Bits) {
  for (const RecomputePolicy policy :
       {RecomputePolicy::none, RecomputePolicy::cheap, RecomputePolicy::all}) {
    for (const graph::DataType type : {graph::DataType::f16, graph::DataType::bf16}) {
      graph::Graph graph = training_graph(policy);
      const StorageReport report = store_in_16_bits(graph, half(type));
      graph.validate();
      expect_stored(graph, type);
      EXPECT_GT(report.narrowed, 0);
      int narrowed = 0;
      int widened = 0;
      for (graph::OperatorId id : graph.order()) {
        narrowed += is_narrow(graph, graph.op(id)) ? 1 : 0;
        widened += is_widen(graph, graph.op(id)) ? 1 : 0;
      }
      EXPECT_EQ(narrowed, report.narrowed);
      EXPECT_EQ(widened, report.widened);
    }
  }
}

// The order of all other operators, and what they compute from what, stays as it was.
TEST(Storage, NothingElseChanges) {
  graph::Graph before = training_graph(RecomputePolicy::all);
  graph::Graph after = before;
  store_in_16_bits(after, half());
  std::vector<std::string> names;
  for (graph::OperatorId id : after.order()) {
    const graph::Operator& op = after.op(id);
    if (op.type == "cast") continue;
    names.push_back(op.name);
    const graph::Operator& original = before.op(operator_named(before, op.name));
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      graph::TensorId input = op.inputs[i];
      for (graph::OperatorId made = after.tensor(input).producer;
           made != graph::kNone && after.op(made).type == "cast";
           made = after.tensor(input).producer) {
        input = after.op(made).inputs[0];
      }
      EXPECT_EQ(after.tensor(input).name, before.tensor(original.inputs[i]).name) << op.name;
    }
  }
  std::vector<std::string> expected;
  for (graph::OperatorId id : before.order()) expected.push_back(before.op(id).name);
  EXPECT_EQ(names, expected);
}

TEST(Storage, NarrowStandsBehindTheProducerAndWidenBeforeTheReader) {
  graph::Graph graph = training_graph(RecomputePolicy::none);
  store_in_16_bits(graph, half());
  const auto readers = graph.consumers();
  for (graph::OperatorId id : graph.order()) {
    const graph::Operator& op = graph.op(id);
    if (is_narrow(graph, op)) {
      const graph::OperatorId producer = graph.tensor(op.inputs[0]).producer;
      EXPECT_LE(position_of(graph, id) - position_of(graph, producer), 2) << op.name;
      EXPECT_EQ(op.phase, graph.op(producer).phase);
    } else if (is_widen(graph, op)) {
      const auto& used = readers[static_cast<size_t>(op.outputs[0])];
      ASSERT_FALSE(used.empty());
      EXPECT_LE(position_of(graph, used[0]) - position_of(graph, id), 2) << op.name;
      EXPECT_EQ(op.phase, graph::Phase::backward);
    }
  }
}

TEST(Storage, SharedMemoryStaysSound) {
  for (const RecomputePolicy policy :
       {RecomputePolicy::none, RecomputePolicy::cheap, RecomputePolicy::all}) {
    graph::Graph graph = training_graph(policy);
    store_in_16_bits(graph, half());
    assign_in_place(graph);
    EXPECT_EQ(storage_fault(graph), "");
  }
}

TEST(Storage, TakesLessMemory) {
  const auto peak_of = [](bool stored) {
    const PrecisionSettings settings = half();
    graph::Graph graph = training_graph(RecomputePolicy::automatic, stored ? &settings : nullptr);
    if (stored) store_in_16_bits(graph, settings);
    assign_in_place(graph);
    return peak_bytes(lifetimes(graph));
  };
  EXPECT_LT(static_cast<double>(peak_of(true)), 0.8 * static_cast<double>(peak_of(false)));
}

TEST(Storage, KeptLayersStayFloat32) {
  PrecisionSettings settings = half();
  graph::Graph all = training_graph(RecomputePolicy::none);
  const int narrowed = store_in_16_bits(all, settings).narrowed;
  settings.keep = {"block2.a", "stem"};
  graph::Graph some = training_graph(RecomputePolicy::none);
  EXPECT_EQ(store_in_16_bits(some, settings).narrowed, narrowed - 2);
  for (graph::OperatorId id : all_of_type(some, "cast")) {
    if (!is_narrow(some, some.op(id))) continue;
    const graph::Tensor& narrow = some.tensor(some.op(id).inputs[0]);
    EXPECT_NE(some.op(narrow.producer).name, "stem");
    EXPECT_NE(some.op(narrow.producer).name, "block2.a");
  }
}

TEST(KeptLayers, NamesStandForLayersAndWhatTheyContain) {
  const KeptLayers kept({"block1", "head"});
  EXPECT_TRUE(kept.contains("block1.a"));
  EXPECT_TRUE(kept.contains("block1"));
  EXPECT_TRUE(kept.contains("head/again"));
  EXPECT_FALSE(kept.contains("block10.a"));
  EXPECT_FALSE(kept.contains("block2.a"));
  kept.require_in(small_residual_network());
}

TEST(KeptLayers, UnknownNamesAreRefusedWithTheNearest) {
  try {
    KeptLayers({"stem", "block1.c_norm"}).require_in(small_residual_network());
    FAIL() << "was taken";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("'block1.c_norm'"));
    EXPECT_THAT(error.what(), ::testing::HasSubstr("did you mean 'block1."));
  }
  EXPECT_THROW(KeptLayers({""}).require_in(small_residual_network()), InputError);
}

}  // namespace
}  // namespace millrace::passes
