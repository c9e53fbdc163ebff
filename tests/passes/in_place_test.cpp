#include "passes/in_place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "graph/operator_definition.h"
#include "graph_facts.h"
#include "passes/liveness.h"
#include "storage_check.h"

namespace millrace::passes {
namespace {

graph::TensorId storage(const graph::Graph& graph, graph::Value value) {
  return graph.tensor(value.id).storage;
}

TEST(InPlace, ChainOfActivationsUsesOneBuffer) {
  graph::Builder net;
  const graph::Value a = net.sigmoid(net.image(2, 3, 4, 4));
  const graph::Value b = net.relu(a);
  const graph::Value c = net.tanh(b);
  graph::Graph graph = net.take();
  graph.add_result(c.id);
  EXPECT_EQ(assign_in_place(graph), 2);
  EXPECT_EQ(storage(graph, a), graph::kNone);  // the images belong to the caller
  EXPECT_EQ(storage(graph, b), a.id);
  EXPECT_EQ(storage(graph, c), a.id);
  EXPECT_EQ(peak_bytes(lifetimes(graph)), 2 * 3 * 4 * 4 * 4);
}

TEST(InPlace, LaterReaderOrResultKeepsTheInput) {
  graph::Builder net;
  const graph::Value a = net.sigmoid(net.image(2, 3, 4, 4));
  const graph::Value b = net.relu(a);
  const graph::Value c = net.tanh(a);
  const graph::Value d = net.relu6(c);
  graph::Graph graph = net.take();
  graph.set_results({b.id, c.id, d.id});
  EXPECT_EQ(assign_in_place(graph), 1);
  EXPECT_EQ(storage(graph, b), graph::kNone);
  EXPECT_EQ(storage(graph, c), a.id);
  EXPECT_EQ(storage(graph, d), graph::kNone);
}

TEST(InPlace, ReaderOfAViewKeepsTheMemory) {
  graph::Builder net;
  const graph::Value a = net.sigmoid(net.image(2, 3, 4, 4));
  const graph::Value flat = net.flatten(a);
  const graph::Value b = net.relu(a);
  const graph::Value c = net.linear(flat, "c", {.features = 2});
  graph::Graph graph = net.take();
  graph.set_results({b.id, c.id});
  EXPECT_EQ(assign_in_place(graph), 1);
  EXPECT_EQ(storage(graph, flat), a.id);
  EXPECT_EQ(storage(graph, b), graph::kNone);
}

TEST(InPlace, ViewOfThePersistentInputLiesInItAndIsNotOverwritten) {
  graph::Builder net;
  const graph::Value images = net.image(2, 3, 4, 4);
  const graph::Value flat = net.flatten(images);
  const graph::Value y = net.relu(flat);
  graph::Graph graph = net.take();
  graph.add_result(y.id);
  EXPECT_EQ(assign_in_place(graph), 1);
  EXPECT_EQ(storage(graph, flat), images.id);
  EXPECT_EQ(storage(graph, y), graph::kNone);
}

TEST(InPlace, AdditionTakesWhicheverSideIsFree) {
  graph::Builder net;
  const graph::Value x = net.image(2, 3, 4, 4);
  const graph::Value a = net.sigmoid(x);
  const graph::Value b = net.tanh(x);
  const graph::Value sum = net.add(a, b);
  const graph::Value twice = net.add(sum, sum);
  graph::Graph graph = net.take();
  graph.set_results({twice.id, a.id});
  EXPECT_EQ(assign_in_place(graph), 1);
  EXPECT_EQ(storage(graph, sum), b.id);
  EXPECT_EQ(storage(graph, twice), graph::kNone);  // reads the same memory through both inputs
}

TEST(InPlace, OtherLayoutNeedsOtherMemory) {
  graph::Builder net;
  const graph::Value a = net.sigmoid(net.image(2, 3, 4, 4));
  const graph::Value b = net.relu(a);
  graph::Graph graph = net.take();
  graph.add_result(b.id);
  graph.tensor(b.id).layout = graph::Layout("acdb");
  EXPECT_EQ(assign_in_place(graph), 0);
}

TEST(InPlace, RunningItAgainChangesNothing) {
  graph::Graph graph = small_residual_network();
  const int first = assign_in_place(graph);
  const std::string text = graph::to_text(graph);
  EXPECT_GT(first, 0);
  EXPECT_EQ(assign_in_place(graph), first);
  EXPECT_EQ(graph::to_text(graph), text);
}

graph::Graph random_graph(uint32_t seed) {
  std::mt19937 random(seed);
  const auto below = [&](size_t n) {
    return std::uniform_int_distribution<size_t>(0, n - 1)(random);
  };
  graph::Graph graph;
  std::vector<graph::TensorId> pool;
  const auto persistent = [&](const std::string& name, graph::Shape shape, graph::Role role) {
    graph::Tensor tensor;
    tensor.name = name;
    tensor.type.shape = std::move(shape);
    tensor.role = role;
    return graph.add_tensor(tensor);
  };
  for (int i = 0; i < 2; ++i) {
    pool.push_back(persistent("input" + std::to_string(i), {4, 3}, graph::Role::input));
  }
  std::vector<graph::TensorId> channels;
  for (int i = 0; i < 4; ++i) {
    channels.push_back(persistent("buffer" + std::to_string(i), {3}, graph::Role::buffer));
  }
  for (int i = 0; i < 40; ++i) {
    const std::string name = "op" + std::to_string(i);
    // Recent tensors are more likely, so that some die early and others live long.
    const auto pick = [&] {
      const size_t window = below(3) == 0 ? pool.size() : std::min<size_t>(pool.size(), 3);
      return pool[pool.size() - 1 - below(window)];
    };
    const graph::TensorId a = pick();
    const graph::TensorId b = pick();
    const graph::TensorId c = pick();
    graph::TensorId y = graph::kNone;
    switch (below(7)) {
      case 0:
        y = graph.apply("relu", name, {a});
        break;
      case 1:
        y = graph.apply("add", name, {a, b});
        break;
      case 2:
        y = graph.apply("relu_backward", name, {a, b});
        break;
      case 3:
        y = graph.apply("add_relu_backward", name, {a, b, c});
        break;
      case 4:
        y = graph.apply("flatten", name, {a});
        break;
      case 5:
        y = graph.apply("reshape", name, {a}, {{"shape", graph::Shape{4, 3}}});
        break;
      default:
        y = graph.apply("batch_norm", name,
                        {a, channels[0], channels[1], channels[2], channels[3], b},
                        {{"epsilon", 1e-5}, {"momentum", 0.1}, {"residual", true}});
    }
    pool.push_back(y);
    if (below(12) == 0) graph.add_result(y);
    const bool is_view = graph::definition_of(graph.op(graph.tensor(y).producer).type).is_view;
    if (!is_view && below(5) == 0) graph.tensor(y).layout = graph::Layout("ba");
  }
  graph.add_result(pool.back());
  return graph;
}

TEST(InPlace, NothingStillNeededIsOverwrittenInRandomGraphs) {
  int total = 0;
  for (uint32_t seed = 0; seed < 2000; ++seed) {
    graph::Graph graph = random_graph(seed);
    graph.validate();
    const int64_t before = peak_bytes(lifetimes(graph));
    total += assign_in_place(graph);
    ASSERT_EQ(storage_fault(graph), "") << "seed " << seed << "\n" << graph::to_text(graph);
    EXPECT_LE(peak_bytes(lifetimes(graph)), before);
  }
  EXPECT_GT(total, 2000 * 8);
}

TEST(InPlace, TheCheckItselfFindsAnOverwrittenTensor) {
  graph::Builder net;
  const graph::Value a = net.sigmoid(net.image(2, 3, 4, 4));
  const graph::Value b = net.relu(a);
  const graph::Value c = net.add(a, b);
  graph::Graph graph = net.take();
  graph.add_result(c.id);
  graph.tensor(b.id).storage = a.id;
  EXPECT_THAT(storage_fault(graph), testing::HasSubstr("overwritten"));
}

}  // namespace
}  // namespace millrace::passes
