// Recomputation of any operator: what is kept is chosen, and every peak is what it is said to be.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <map>

#include "graph_facts.h"
#include "models/models.h"
#include "passes/autodiff.h"
#include "passes/fusion.h"
#include "passes/gradient_fusion.h"
#include "passes/in_place.h"
#include "passes/liveness.h"
#include "passes/optimizer.h"
#include "passes/recompute.h"
#include "passes/recompute_plan.h"
#include "passes/recompute_search.h"
#include "storage_check.h"
#include "symbolic.h"

namespace millrace::passes {
namespace {

using Scope = RecomputePlanner::Scope;

graph::Graph trained(graph::Graph graph) {
  fuse(graph);
  const auto gradients = differentiate(graph, graph.find_tensor("loss"));
  fuse_gradients(graph);
  add_updates(graph, gradients, {});
  return graph;
}

// Convolutions with relus; the output of each takes kLayer bytes.
constexpr int64_t kLayer = 2 * 4 * 16 * 16 * 4;
graph::Graph chain(int layers) {
  graph::Builder net;
  graph::Value x = net.image(2, 4, 16, 16);
  for (int i = 0; i < layers; ++i) {
    const std::string name = "conv" + std::to_string(i);
    x = net.relu(net.convolution(x, name, {.channels = 4, .kernel = 3, .padding = 1}));
  }
  net.classify(net.linear(net.flatten(net.global_average_pool(x)), "head", {.features = 10}));
  return trained(net.take());
}

int64_t finished_peak(graph::Graph graph) {
  assign_in_place(graph);
  EXPECT_EQ(storage_fault(graph), "");
  return peak_bytes(lifetimes(graph));
}

// Computes the same as before, and takes the memory that was planned; returns that.
int64_t expect_sound(const graph::Graph& before, const graph::Graph& after,
                     const RecomputeReport& report) {
  after.validate();
  EXPECT_EQ(Symbolic(after).persistent(), Symbolic(before).persistent());
  EXPECT_EQ(Symbolic(after).results(), Symbolic(before).results());
  std::map<std::string, int> runs;
  for (graph::OperatorId id : after.order()) ++runs[after.op(id).name];
  for (const auto& [name, count] : runs) EXPECT_EQ(count, 1) << name;
  int clones = 0;
  for (const auto& [name, count] : runs) clones += name.ends_with("/again") ? 1 : 0;
  EXPECT_EQ(clones, report.clones);
  EXPECT_EQ(finished_peak(after), report.peak_bytes);
  return report.peak_bytes;
}

TEST(RecomputeAny, AChainTakesAboutTwiceTheRootOfItsLength) {
  for (const int layers : {16, 36, 64}) {
    const graph::Graph kept = chain(layers);
    EXPECT_GT(finished_peak(kept), layers * kLayer);
    graph::Graph again = kept;
    const RecomputeReport report = recompute(again, RecomputePolicy::all);
    const int64_t peak = expect_sound(kept, again, report);
    EXPECT_LT(static_cast<double>(peak) / kLayer, 2 * std::sqrt(layers) + 3) << layers;
    EXPECT_GT(report.costly_clones, layers / 2);
    EXPECT_LT(report.costly_clones, layers);
  }
}

// All choices there are, each followed to the end by the other passes.
int64_t least_of_all(const graph::Graph& graph, const StepMemory& memory = {}) {
  const RecomputePlanner planner(graph, Scope::any, {.memory = memory});
  const size_t count = planner.candidates().size();
  EXPECT_LE(count, 14u);
  int64_t least = planner.peak(planner.none());
  for (size_t bits = 1; bits < (size_t{1} << count); ++bits) {
    RecomputeChoice choice = planner.none();
    for (size_t i = 0; i < count; ++i) {
      RecomputePlanner::choose(choice, planner.candidates()[i], (bits >> i & 1) != 0);
    }
    if (planner.stale(choice).empty()) least = std::min(least, planner.peak(choice));
  }
  return least;
}

TEST(RecomputeAny, ComesCloseToTheLeastOfAllChoicesInSmallNetworks) {
  for (const int layers : {4, 7, 9}) {
    graph::Graph graph = chain(layers);
    const int64_t least = least_of_all(graph);
    EXPECT_LE(recompute(graph, RecomputePolicy::all).peak_bytes, least * 21 / 20) << layers;
  }
  graph::Graph residual = trained(small_residual_network());
  const int64_t least = least_of_all(residual);
  EXPECT_LE(recompute(residual, RecomputePolicy::all).peak_bytes, least * 11 / 10);
}

TEST(RecomputeAny, ComesCloseToTheLeastForMicroBatchesUnderWay) {
  const StepMemory memory = {.phased = true, .slots = 3};
  graph::Graph graph = chain(9);
  const int64_t least = least_of_all(graph, memory);
  const int64_t peak = recompute(graph, RecomputePolicy::all, {.memory = memory}).peak_bytes;
  EXPECT_LE(peak, least * 21 / 20);
}

TEST(RecomputeAny, ABudgetIsKeptWithLessAndLessWork) {
  const graph::Graph kept = chain(24);
  const RecomputePlanner planner(kept, Scope::any);
  const int64_t most = planner.peak(planner.none());
  graph::Graph smallest = kept;
  const RecomputeReport least = recompute(smallest, RecomputePolicy::all);
  int before = least.costly_clones;
  for (int i = 1; i <= 4; ++i) {
    const int64_t budget = least.peak_bytes + (most - least.peak_bytes) * i / 4;
    graph::Graph graph = kept;
    const RecomputeReport report = recompute(graph, RecomputePolicy::all, {.budget_bytes = budget});
    EXPECT_LE(expect_sound(kept, graph, report), budget);
    EXPECT_LT(report.costly_clones, before);
    before = report.costly_clones;
  }
  EXPECT_EQ(before, 0);
}

// The pool's positions and the flattened view are taken from its second run.
TEST(RecomputeAny, OutputsAndViewsOfASecondRunGoTogether) {
  graph::Builder net;
  graph::Value x = net.image(2, 4, 16, 16);
  x = net.relu(net.convolution(x, "a", {.channels = 16, .kernel = 3, .padding = 1}));
  x = net.relu(net.convolution(x, "b", {.channels = 16, .kernel = 3, .padding = 1}));
  x = net.max_pool(x, {.kernel = 2, .stride = 2});
  net.classify(net.linear(net.flatten(x), "head", {.features = 10}));
  graph::Graph graph = trained(net.take());
  const RecomputePlanner planner(graph, Scope::any);
  bool found = false;
  for (const RecomputeCandidate& candidate : planner.candidates()) {
    if (graph.op(candidate.producer).type != "max_pool") continue;
    found = true;
    EXPECT_EQ(candidate.tensors.size(), 3u);  // values, positions, the view
  }
  EXPECT_TRUE(found);
  const std::vector<RecomputePlanner::Step> steps = planner.schedule(planner.all());
  std::vector<std::string> again;
  for (const auto& step : steps) {
    if (step.again) again.push_back(graph.op(step.op).type);
  }
  EXPECT_EQ(again, (std::vector<std::string>{"convolution", "convolution", "max_pool", "flatten"}));
}

TEST(RecomputeAny, NetworksTakeLessThanWithCheapOperatorsAlone) {
  for (const char* model : {"alexnet", "vgg16", "vgg16_bn", "resnet18", "resnet50"}) {
    const graph::Graph kept = trained(models::build_model(model, {.batch = 16}));
    graph::Graph cheap = kept;
    graph::Graph any = kept;
    const RecomputeReport some = recompute(cheap, RecomputePolicy::cheap);
    const RecomputeReport report = recompute(any, RecomputePolicy::all);
    EXPECT_LT(expect_sound(kept, any, report), some.peak_bytes) << model;
    EXPECT_GT(report.costly_clones, 0) << model;
    for (graph::OperatorId id : any.order()) {
      const graph::Operator& op = any.op(id);
      EXPECT_FALSE(op.name.ends_with("/again") && op.type == "batch_norm") << op.name;
    }
  }
}

TEST(RecomputeAny, Resnet152TakesAFewSeconds) {
  graph::Graph graph = trained(models::build_model("resnet152", {.batch = 64}));
  const std::clock_t start = std::clock();
  EXPECT_GT(recompute(graph, RecomputePolicy::all).costly_clones, 50);
  EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, 4.0);
  graph.validate();
}

}  // namespace
}  // namespace millrace::passes
