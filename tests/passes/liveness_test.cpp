#include "passes/liveness.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph_facts.h"

namespace millrace::passes {
namespace {

std::vector<std::string> described(const graph::Graph& graph) {
  std::vector<std::string> lines;
  for (const Lifetime& life : lifetimes(graph)) {
    lines.push_back(graph.tensor(life.tensor).name + " " + std::to_string(life.first) + "-" +
                    std::to_string(life.last) + " " + std::to_string(life.bytes));
  }
  return lines;
}

// 2x3x4x4 images: 96 values, 384 bytes.
struct Chain {
  Chain() {
    const graph::Value x = net.image(2, 3, 4, 4);
    a = net.sigmoid(x);                          // 0
    b = net.tanh(a);                             // 1
    c = net.add(a, b);                           // 2
    flat = net.flatten(c);                       // 3
    d = net.linear(flat, "d", {.features = 5});  // 4: 2x5, 40 bytes
    graph = net.take();
    for (const auto& [id, name] :
         {std::pair{a.id, "a"}, {b.id, "b"}, {c.id, "c"}, {flat.id, "flat"}}) {
      graph.tensor(id).name = name;
    }
    graph.add_result(d.id);
  }
  graph::Builder net;
  graph::Graph graph;
  graph::Value a, b, c, flat, d;
};

TEST(Liveness, ChainByHand) {
  Chain chain;
  EXPECT_THAT(described(chain.graph),
              testing::ElementsAre("a 0-2 384", "b 1-2 384", "c 2-4 384", "d 4-4 40"));
  EXPECT_EQ(peak_bytes(lifetimes(chain.graph)), 3 * 384);
}

TEST(Liveness, ResultsLiveToTheEndAndUnreadOutputsForTheirOperator) {
  Chain chain;
  chain.graph.set_results({chain.b.id});
  EXPECT_THAT(described(chain.graph),
              testing::ElementsAre("a 0-2 384", "b 1-4 384", "c 2-4 384", "d 4-4 40"));
}

TEST(Liveness, StorageGivenAwayJoinsLifetimes) {
  Chain chain;
  chain.graph.tensor(chain.c.id).storage = chain.b.id;
  EXPECT_THAT(described(chain.graph), testing::ElementsAre("a 0-2 384", "b 1-4 384", "d 4-4 40"));
  EXPECT_EQ(peak_bytes(lifetimes(chain.graph)), 2 * 384);
  EXPECT_EQ(storage_roots(chain.graph)[static_cast<size_t>(chain.flat.id)], chain.b.id);
}

TEST(Liveness, BlockedLayoutsCountTheirPadding) {
  Chain chain;
  chain.graph.tensor(chain.a.id).layout = graph::Layout("aBcd8b");
  EXPECT_EQ(lifetimes(chain.graph)[0].bytes, 2 * 8 * 16 * 4);
}

TEST(Liveness, ViewOfAPersistentTensorTakesNoMemory) {
  graph::Builder net;
  const graph::Value y = net.flatten(net.image(2, 3, 4, 4));
  graph::Graph graph = net.take();
  graph.add_result(y.id);
  EXPECT_TRUE(lifetimes(graph).empty());
  EXPECT_EQ(peak_bytes({}), 0);
}

TEST(Liveness, PeakIsAtTheWorstPosition) {
  EXPECT_EQ(peak_bytes({{0, 0, 1, 10}, {1, 1, 2, 20}, {2, 2, 2, 5}, {3, 3, 3, 29}}), 30);
}

}  // namespace
}  // namespace millrace::passes
