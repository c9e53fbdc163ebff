#include "simulate/simulator.h"

#include <gmock/gmock.h>

#include <chrono>
#include <cmath>

#include "planner/cluster/cluster.h"
#include "simulate/fabric.h"

namespace millrace::simulate {
namespace {

using ::testing::HasSubstr;

SimulationItem work(std::string name, int lane, double seconds) {
  SimulationItem item;
  item.name = std::move(name);
  item.lane = lane;
  item.seconds = seconds;
  return item;
}

// A pipeline in which each stage's forward takes 1 and its backward 2 seconds, in an order.
struct Work {
  bool forward;
  int batch;
};

SimulationInput pipeline(const std::vector<std::vector<Work>>& orders, int batches) {
  const int stages = static_cast<int>(orders.size());
  SimulationInput input;
  input.devices = stages;
  std::vector<std::vector<int>> forward(stages, std::vector<int>(batches));
  auto backward = forward;
  for (int stage = 0; stage < stages; ++stage) {
    input.lanes.push_back({stage, "compute", true});
    for (const Work& step : orders[stage]) {
      (step.forward ? forward : backward)[stage][step.batch] = static_cast<int>(input.items.size());
      SimulationItem item = work(step.forward ? "F" : "B", stage, step.forward ? 1 : 2);
      item.category = std::string(step.forward ? "forward" : "backward");
      item.memory = {{stage, step.forward ? 1.0 : -1.0, !step.forward}};
      input.items.push_back(item);
    }
  }
  for (int batch = 0; batch < batches; ++batch) {
    for (int stage = 0; stage < stages; ++stage) {
      if (stage > 0) {
        input.items[forward[stage][batch]].after.push_back(forward[stage - 1][batch]);
        input.items[backward[stage - 1][batch]].after.push_back(backward[stage][batch]);
      }
      input.items[backward[stage][batch]].after.push_back(forward[stage][batch]);
    }
  }
  return input;
}

std::vector<std::vector<Work>> gpipe(int stages, int batches) {
  std::vector<Work> order;
  for (int i = 0; i < batches; ++i) order.push_back({true, i});
  for (int i = 0; i < batches; ++i) order.push_back({false, i});
  return std::vector<std::vector<Work>>(stages, order);
}

std::vector<std::vector<Work>> one_forward_one_backward(int stages, int batches) {
  std::vector<std::vector<Work>> orders;
  for (int stage = 0; stage < stages; ++stage) {
    const int warm_up = std::min(stages - stage - 1, batches);
    std::vector<Work> order;
    for (int i = 0; i < warm_up; ++i) order.push_back({true, i});
    for (int i = 0; i + warm_up < batches; ++i) {
      order.push_back({true, i + warm_up});
      order.push_back({false, i});
    }
    for (int i = batches - warm_up; i < batches; ++i) order.push_back({false, i});
    orders.push_back(order);
  }
  return orders;
}

TEST(SimulatorTest, BubbleOfFlushedPipelines) {
  for (const int stages : {1, 2, 3, 8}) {
    for (const int batches : {1, 4, 16}) {
      for (const auto& orders :
           {gpipe(stages, batches), one_forward_one_backward(stages, batches)}) {
        const SimulationResult result = simulate(pipeline(orders, batches));
        EXPECT_DOUBLE_EQ(result.seconds, 3.0 * (batches + stages - 1));
        for (int stage = 0; stage < stages; ++stage) {
          EXPECT_NEAR(result.idle_share(stage), (stages - 1.0) / (batches + stages - 1), 1e-12);
        }
      }
    }
  }
}

TEST(SimulatorTest, MemoryOfFlushedPipelines) {
  const SimulationResult all = simulate(pipeline(gpipe(4, 16), 16));
  const SimulationResult few = simulate(pipeline(one_forward_one_backward(4, 16), 16));
  for (int stage = 0; stage < 4; ++stage) {
    EXPECT_DOUBLE_EQ(all.peak_memory[stage], 16);
    EXPECT_DOUBLE_EQ(few.peak_memory[stage], 4 - stage);
    EXPECT_EQ(few.memory[stage].size(), 32u);
    EXPECT_DOUBLE_EQ(few.memory[stage].back().bytes, 0);
  }
}

// A producer of one item a second and a consumer of one in `slow` seconds, `slots` apart: the
// producer runs ahead by its slots, then in step with the consumer.
TEST(SimulatorTest, BoundedChannelHoldsTheProducerBack) {
  const int items = 20, slots = 3;
  const double slow = 4;
  SimulationInput input;
  input.devices = 2;
  input.lanes = {{0, "producer", true}, {1, "consumer", true}};
  input.counters = {slots};
  for (int i = 0; i < items; ++i) {
    SimulationItem produce = work("produce", 0, 1);
    produce.acquire = {0};
    input.items.push_back(produce);
    SimulationItem consume = work("consume", 1, slow);
    consume.after = {2 * i};
    consume.release = {0};
    input.items.push_back(consume);
  }
  const SimulationResult result = simulate(input);
  for (int i = 0; i < items; ++i) {
    const double free_slot = i < slots ? i : 1 + slow * (i - slots + 1);
    EXPECT_DOUBLE_EQ(result.start[2 * i], free_slot) << i;
    EXPECT_DOUBLE_EQ(result.end[2 * i + 1], 1 + slow * (i + 1)) << i;
  }
}

TEST(SimulatorTest, TransfersShareALink) {
  SimulationInput input;
  input.links = {{"wire", 100}};
  SimulationItem first = work("first", -1, 0);
  first.bytes = 100;
  first.links = {0};
  SimulationItem second = first;
  second.seconds = 0.5;  // begins when half of the first has gone
  input.items = {first, second};
  const SimulationResult result = simulate(input);
  EXPECT_DOUBLE_EQ(result.end[0], 1.5);  // 50 alone, 50 at half the rate
  EXPECT_DOUBLE_EQ(result.end[1], 2.0);
  EXPECT_DOUBLE_EQ(result.link_bytes[0], 200);
  input.items[0].rate = 10;  // a slow sender leaves the other half of the wire unused
  EXPECT_DOUBLE_EQ(simulate(input).end[0], 10);
}

TEST(SimulatorTest, RingAllReduceTakesItsClosedFormula) {
  const Cluster cluster = planner::find_cluster("titanv-8", "--cluster");
  const Fabric fabric(cluster);
  for (const int members : {2, 4, 8}) {
    std::vector<int> devices;
    for (int i = 0; i < members; ++i) devices.push_back(i);
    SimulationInput input;
    input.links = fabric.links();
    SimulationItem item;
    route_collective(item, fabric.ring(devices), Collective::all_reduce, members, 1e9, 1);
    input.items = {item};
    const double bandwidth = members == 8 ? 9.6e9 : 15.75e9;
    const double latency = members == 8 ? 9e-6 : members == 4 ? 7e-6 : 5e-6;
    EXPECT_NEAR(simulate(input).seconds,
                2.0 * (members - 1) / members * 1e9 / bandwidth + 2 * (members - 1) * latency,
                1e-9);
  }
}

// Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations in MPICH",
// for the ring; up and down a tree in pieces everything passes a link twice.
TEST(SimulatorTest, CollectivesCostWhatEachOfThemMoves) {
  constexpr double kRate = 1e9, kLatency = 1e-4, kEfficiency = 0.5;
  const auto seconds = [&](Collective kind, int members, double bytes) {
    SimulationItem item;
    route_collective(item, {{}, kRate, kLatency}, kind, members, bytes, kEfficiency);
    return item.seconds + (item.bytes > 0 ? item.bytes / item.rate : 0);
  };
  for (const int n : {2, 3, 8, 100}) {
    for (const double bytes : {1.0, 1e6, 1e9}) {
      const double once = (n - 1) * kLatency + bytes * (n - 1) / n / (kRate * kEfficiency);
      const double levels = std::ceil(std::log2(n));
      const double tree = 2 * levels * kLatency + 2 * bytes / (kRate * kEfficiency);
      EXPECT_NEAR(seconds(Collective::all_gather, n, bytes), once, 1e-9 * once);
      EXPECT_NEAR(seconds(Collective::reduce_scatter, n, bytes), once, 1e-9 * once);
      const double sum = std::min(2 * once, tree);
      EXPECT_NEAR(seconds(Collective::all_reduce, n, bytes), sum, 1e-9 * sum) << n << " " << bytes;
    }
  }
  EXPECT_LT(seconds(Collective::all_reduce, 100, 1), seconds(Collective::all_gather, 100, 1));
  EXPECT_DOUBLE_EQ(seconds(Collective::all_reduce, 1, 1e9), 0);
}

TEST(SimulatorTest, RingsUseBondedLinksAndTheNetwork) {
  const Cluster cluster = planner::find_cluster("v100-16gb-8x2", "--cluster");
  const Fabric fabric(cluster);
  std::vector<int> machine, all;
  for (int i = 0; i < 16; ++i) {
    if (i < 8) machine.push_back(i);
    all.push_back(i);
  }
  EXPECT_DOUBLE_EQ(fabric.ring(machine).rate, 6 * 25e9);
  EXPECT_DOUBLE_EQ(fabric.ring(all).rate, 12.5e9);
  EXPECT_DOUBLE_EQ(fabric.between(0, 3).rate, 50e9);
  EXPECT_DOUBLE_EQ(fabric.between(0, 8).rate, 12.5e9);
  EXPECT_TRUE(fabric.ring({5}).links.empty());
}

TEST(SimulatorTest, AnUnorderedLaneRunsWhatIsReady) {
  SimulationInput input;
  input.devices = 1;
  input.lanes = {{0, "compute", false}, {0, "other", true}};
  SimulationItem late = work("late", 0, 1);
  late.after = {1};
  SimulationItem blocker = work("blocker", 1, 5);
  SimulationItem early = work("early", 0, 1);
  input.items = {late, blocker, early};
  EXPECT_DOUBLE_EQ(simulate(input).seconds, 6);
  EXPECT_DOUBLE_EQ(simulate(input).start[2], 0);
  input.lanes[0].ordered = true;
  EXPECT_DOUBLE_EQ(simulate(input).seconds, 7);
}

TEST(SimulatorTest, NamesWhatCanNeverStart) {
  SimulationInput input;
  SimulationItem item = work("chicken", -1, 1);
  item.after = {0};
  input.items = {item};
  try {
    simulate(input);
    ADD_FAILURE();
  } catch (const std::logic_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("chicken"));
  }
}

TEST(SimulatorTest, AThousandDevicesTakeSeconds) {
  const auto begin = std::chrono::steady_clock::now();
  const int stages = 1024, batches = 64;
  const SimulationResult result =
      simulate(pipeline(one_forward_one_backward(stages, batches), batches));
  EXPECT_DOUBLE_EQ(result.seconds, 3.0 * (batches + stages - 1));
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(elapsed.count(), 10);
}

}  // namespace
}  // namespace millrace::simulate
