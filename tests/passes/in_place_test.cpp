#include "passes/in_place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "graph/operator_definition.h"
#include "graph_facts.h"
#include "passes/liveness.h"
#include "storage_check.h"

namespace millrace {
namespace {

TensorId storage(const Graph& graph, Value value) { return graph.tensor(value.id).storage; }

TEST(InPlace, ChainOfActivationsUsesOneBuffer) {
  Builder net;
  const Value a = net.sigmoid(net.image(2, 3, 4, 4));
  const Value b = net.relu(a);
  const Value c = net.tanh(b);
  Graph graph = net.take();
  graph.add_result(c.id);
  EXPECT_EQ(assign_in_place(graph), 2);
  EXPECT_EQ(storage(graph, a), kNone);  // the images belong to the caller
  EXPECT_EQ(storage(graph, b), a.id);
  EXPECT_EQ(storage(graph, c), a.id);
  EXPECT_EQ(peak_bytes(lifetimes(graph)), 2 * 3 * 4 * 4 * 4);
}

TEST(InPlace, LaterReaderOrResultKeepsTheInput) {
  Builder net;
  const Value a = net.sigmoid(net.image(2, 3, 4, 4));
  const Value b = net.relu(a);
  const Value c = net.tanh(a);
  const Value d = net.relu6(c);
  Graph graph = net.take();
  graph.set_results({b.id, c.id, d.id});
  EXPECT_EQ(assign_in_place(graph), 1);
  EXPECT_EQ(storage(graph, b), kNone);
  EXPECT_EQ(storage(graph, c), a.id);
  EXPECT_EQ(storage(graph, d), kNone);
}

TEST(InPlace, ReaderOfAViewKeepsTheMemory) {
  Builder net;
  const Value a = net.sigmoid(net.image(2, 3, 4, 4));
  const Value flat = net.flatten(a);
  const Value b = net.relu(a);
  const Value c = net.linear(flat, "c", {.features = 2});
  Graph graph = net.take();
  graph.set_results({b.id, c.id});
  EXPECT_EQ(assign_in_place(graph), 1);
  EXPECT_EQ(storage(graph, flat), a.id);
  EXPECT_EQ(storage(graph, b), kNone);
}

TEST(InPlace, ViewOfThePersistentInputLiesInItAndIsNotOverwritten) {
  Builder net;
  const Value images = net.image(2, 3, 4, 4);
  const Value flat = net.flatten(images);
  const Value y = net.relu(flat);
  Graph graph = net.take();
  graph.add_result(y.id);
  EXPECT_EQ(assign_in_place(graph), 1);
  EXPECT_EQ(storage(graph, flat), images.id);
  EXPECT_EQ(storage(graph, y), kNone);
}

TEST(InPlace, AdditionTakesWhicheverSideIsFree) {
  Builder net;
  const Value x = net.image(2, 3, 4, 4);
  const Value a = net.sigmoid(x);
  const Value b = net.tanh(x);
  const Value sum = net.add(a, b);
  const Value twice = net.add(sum, sum);
  Graph graph = net.take();
  graph.set_results({twice.id, a.id});
  EXPECT_EQ(assign_in_place(graph), 1);
  EXPECT_EQ(storage(graph, sum), b.id);
  EXPECT_EQ(storage(graph, twice), kNone);  // reads the same memory through both inputs
}

TEST(InPlace, OtherLayoutNeedsOtherMemory) {
  Builder net;
  const Value a = net.sigmoid(net.image(2, 3, 4, 4));
  const Value b = net.relu(a);
  Graph graph = net.take();
  graph.add_result(b.id);
  graph.tensor(b.id).layout = Layout("acdb");
  EXPECT_EQ(assign_in_place(graph), 0);
}

TEST(InPlace, RunningItAgainChangesNothing) {
  Graph graph = small_residual_network();
  const int first = assign_in_place(graph);
  const std::string text = to_text(graph);
  EXPECT_GT(first, 0);
  EXPECT_EQ(assign_in_place(graph), first);
  EXPECT_EQ(to_text(graph), text);
}

Graph random_graph(uint32_t seed) {
  std::mt19937 random(seed);
  const auto below = [&](size_t n) {
    return std::uniform_int_distribution<size_t>(0, n - 1)(random);
  };
  Graph graph;
  std::vector<TensorId> pool;
  const auto persistent = [&](const std::string& name, Shape shape, Role role) {
    Tensor tensor;
    tensor.name = name;
    tensor.type.shape = std::move(shape);
    tensor.role = role;
    return graph.add_tensor(tensor);
  };
  for (int i = 0; i < 2; ++i) {
    pool.push_back(persistent("input" + std::to_string(i), {4, 3}, Role::input));
  }
  std::vector<TensorId> channels;
  for (int i = 0; i < 4; ++i) {
    channels.push_back(persistent("buffer" + std::to_string(i), {3}, Role::buffer));
  }
  for (int i = 0; i < 40; ++i) {
    const std::string name = "op" + std::to_string(i);
    // Recent tensors are more likely, so that some die early and others live long.
    const auto pick = [&] {
      const size_t window = below(3) == 0 ? pool.size() : std::min<size_t>(pool.size(), 3);
      return pool[pool.size() - 1 - below(window)];
    };
    const TensorId a = pick();
    const TensorId b = pick();
    const TensorId c = pick();
    TensorId y = kNone;
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
        y = graph.apply("reshape", name, {a}, {{"shape", Shape{4, 3}}});
        break;
      default:
        y = graph.apply("batch_norm", name,
                        {a, channels[0], channels[1], channels[2], channels[3], b},
                        {{"epsilon", 1e-5}, {"momentum", 0.1}, {"residual", true}});
    }
    pool.push_back(y);
    if (below(12) == 0) graph.add_result(y);
    const bool is_view = definition_of(graph.op(graph.tensor(y).producer).type).is_view;
    if (!is_view && below(5) == 0) graph.tensor(y).layout = Layout("ba");
  }
  graph.add_result(pool.back());
  return graph;
}

TEST(InPlace, NothingStillNeededIsOverwrittenInRandomGraphs) {
  int total = 0;
  for (uint32_t seed = 0; seed < 2000; ++seed) {
    Graph graph = random_graph(seed);
    graph.validate();
    const int64_t before = peak_bytes(lifetimes(graph));
    total += assign_in_place(graph);
    ASSERT_EQ(storage_fault(graph), "") << "seed " << seed << "\n" << to_text(graph);
    EXPECT_LE(peak_bytes(lifetimes(graph)), before);
  }
  EXPECT_GT(total, 2000 * 8);
}

TEST(InPlace, TheCheckItselfFindsAnOverwrittenTensor) {
  Builder net;
  const Value a = net.sigmoid(net.image(2, 3, 4, 4));
  const Value b = net.relu(a);
  const Value c = net.add(a, b);
  Graph graph = net.take();
  graph.add_result(c.id);
  graph.tensor(b.id).storage = a.id;
  EXPECT_THAT(storage_fault(graph), testing::HasSubstr("overwritten"));
}

}  // namespace
}  // namespace millrace
