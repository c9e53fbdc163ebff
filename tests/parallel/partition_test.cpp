#include "parallel/partition.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <set>

#include "base/error.h"
#include "graph/builder.h"
#include "models/models.h"

namespace millrace::parallel {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

graph::Graph model(const std::string& name) {
  models::ModelOptions options = models::default_options(name);
  options.batch = 2;
  options.image = name == "alexnet" ? 64 : 32;
  return models::build_model(name, options);
}

int stage_of(const graph::Graph& graph, const std::vector<int>& stages, const std::string& name) {
  for (graph::OperatorId id : graph.order()) {
    if (graph.op(id).name == name) return stages[static_cast<size_t>(id)];
  }
  throw std::runtime_error("no operator " + name);
}

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

// VGG-16 has 32 such operators: 13 convolutions and 3 linear layers with weight and bias, the 15
// that rectify, and the loss. 11 of 18 slots are the first 19.
TEST(Partition, ShareOfVggByHand) {
  const graph::Graph graph = model("vgg16");
  const std::vector<int> stages = assign_by_share(graph, {11, 7});
  std::vector<std::string> first;
  for (graph::OperatorId id : graph.order()) {
    if (stages[static_cast<size_t>(id)] == 0) first.push_back(graph.op(id).name);
  }
  const std::vector<std::string> convolutions = {
      "features.0",  "features.2",  "features.5",  "features.7",  "features.10",
      "features.12", "features.14", "features.17", "features.19", "features.21"};
  for (const std::string& name : convolutions) EXPECT_EQ(stage_of(graph, stages, name), 0) << name;
  EXPECT_EQ(stage_of(graph, stages, "features.24"), 1);
  // Ten convolutions, nine rectified, and three pools that go with what is before them.
  EXPECT_EQ(first.size(), 10u + 9 + 3);
  EXPECT_EQ(first.back(), "features.21");
}

// The first convolution of ResNet reads one trained tensor, its weight: it goes with what follows.
TEST(Partition, ShareAttachesTheStartToWhatFollows) {
  const graph::Graph graph = model("resnet18");
  for (const std::vector<int64_t>& weights :
       {std::vector<int64_t>{1, 1}, {3, 1}, {1, 2, 3}, {1, 1, 1, 1, 1, 1, 1, 1}}) {
    const std::vector<int> stages = assign_by_share(graph, weights);
    EXPECT_EQ(stage_of(graph, stages, "conv1"), 0);
    EXPECT_EQ(stage_of(graph, stages, "fc"), static_cast<int>(weights.size()) - 1);
    EXPECT_EQ(stages[static_cast<size_t>(graph.tensor(graph.find_tensor("top5")).producer)],
              static_cast<int>(weights.size()) - 1);
  }
}

TEST(Partition, EveryModelAndWayObeysTheRules) {
  for (const std::string& name : models::model_names()) {
    const graph::Graph graph = model(name == "resnet152" ? "resnet101" : name);
    for (int stages = 1; stages <= 6; ++stages) {
      const std::vector<int64_t> weights(static_cast<size_t>(stages), 2);
      EXPECT_NO_THROW(check_stages(graph, assign_by_share(graph, weights), stages)) << name;
      EXPECT_NO_THROW(check_stages(graph, assign_balanced(graph, {.stages = stages}), stages))
          << name;
    }
  }
}

TEST(Partition, CutsBehindNamedLayersAndBlocks) {
  const graph::Graph graph = model("resnet18");
  const std::vector<int> stages = assign_after(graph, {"layer1", "layer3.0.conv1"});
  EXPECT_EQ(stage_of(graph, stages, "layer1.1.bn2"), 0);
  EXPECT_EQ(stage_of(graph, stages, "layer2.0.conv1"), 1);
  EXPECT_EQ(stage_of(graph, stages, "layer3.0.conv1"), 1);
  EXPECT_EQ(stage_of(graph, stages, "layer3.0.bn1"), 2);
  // The block's sum and its relu belong to it: only one tensor is read across the cut.
  std::set<graph::TensorId> crossing;
  for (graph::OperatorId id : graph.order()) {
    for (graph::TensorId input : graph.op(id).inputs) {
      const graph::OperatorId producer = graph.tensor(input).producer;
      if (producer != graph::kNone && stages[static_cast<size_t>(producer)] == 0 &&
          stages[static_cast<size_t>(id)] > 0) {
        crossing.insert(input);
      }
    }
  }
  EXPECT_EQ(crossing.size(), 1u);
  EXPECT_THAT(assign_after(graph, {}), testing::Each(0));
}

graph::Graph chain(const std::vector<int64_t>& features) {
  graph::Builder net;
  graph::Value x = net.flatten(net.image(2, 1, 20, 20));
  for (size_t i = 0; i < features.size(); ++i) {
    x = net.linear(x, fmt::format("l{}", i), {.features = features[i]});
  }
  net.classify(net.linear(x, "head", {.features = 10}));
  return net.take();
}

// Against every division there is.
TEST(Partition, BalancedIsTheBestOfAll) {
  const graph::Graph graph = chain({8, 8, 8, 8, 8, 8, 8});
  const auto cost = [](graph::OperatorId id) {
    return static_cast<double>((id * 37 + 11) % 13 + 1);
  };
  const size_t count = graph.order().size();
  const std::vector<int> replicas = {2, 1, 3};
  const auto slowest = [&](const std::vector<int>& stages) {
    std::vector<double> sums(3, 0);
    for (graph::OperatorId id : graph.order()) {
      sums[static_cast<size_t>(stages[static_cast<size_t>(id)])] += cost(id);
    }
    return std::max({sums[0] / 2, sums[1], sums[2] / 3});
  };
  double best = std::numeric_limits<double>::infinity();
  const size_t labels = count - 3;  // the loss and two hit counts
  for (size_t i = 1; i < labels; ++i) {
    for (size_t j = i + 1; j <= labels; ++j) {
      std::vector<int> stages(count, 0);
      for (size_t k = i; k < count; ++k) stages[static_cast<size_t>(graph.order()[k])] = 1;
      for (size_t k = j; k < count; ++k) stages[static_cast<size_t>(graph.order()[k])] = 2;
      best = std::min(best, slowest(stages));
    }
  }
  const std::vector<int> stages =
      assign_balanced(graph, {.stages = 3, .replicas = replicas, .seconds = cost});
  EXPECT_DOUBLE_EQ(slowest(stages), best);
}

TEST(Partition, MemoryLimitsAndBandwidthMoveTheCut) {
  const graph::Graph graph = chain({1000, 1000, 10, 1000, 1000});
  const auto equal = [](graph::OperatorId) { return 1.0; };
  const auto weights_of = [&](const std::vector<int>& stages, int stage) {
    int64_t bytes = 0;
    for (graph::OperatorId id : graph.order()) {
      if (stages[static_cast<size_t>(id)] != stage) continue;
      for (graph::TensorId input : graph.op(id).inputs) {
        const graph::Tensor& tensor = graph.tensor(input);
        if (tensor.role == graph::Role::parameter) bytes += tensor.type.elements() * 4;
      }
    }
    return bytes;
  };
  // Two layers of 1000 x 1000 and their copies are 12 MB each; stage 0 may hold none.
  const std::vector<int> tight = assign_balanced(
      graph, {.stages = 2, .seconds = equal, .memory_limits = {1'000'000, 100'000'000}});
  EXPECT_LT(weights_of(tight, 0), 400'000);
  const std::vector<int> roomy = assign_balanced(
      graph, {.stages = 2, .seconds = equal, .memory_limits = {100'000'000, 100'000'000}});
  EXPECT_GT(weights_of(roomy, 0), 4'000'000);
  // What cannot fit is still divided, as well as can be.
  const std::vector<int> hopeless =
      assign_balanced(graph, {.stages = 2, .seconds = equal, .memory_limits = {1'000, 1'000}});
  EXPECT_GT(weights_of(hopeless, 0), 4'000'000);
  EXPECT_GT(weights_of(hopeless, 1), 4'000'000);
  // On a slow link the narrow layer is the place.
  const std::vector<int> slow =
      assign_balanced(graph, {.stages = 2, .seconds = equal, .bytes_per_second = 1});
  EXPECT_EQ(stage_of(graph, slow, "l2"), 0);
  EXPECT_EQ(stage_of(graph, slow, "l3"), 1);
}

TEST(Partition, Mistakes) {
  EXPECT_THAT(parse_stage_weights("11:7", "--stage-weights"), ElementsAre(11, 7));
  for (const char* text :
       {"", "11:", ":7", "0:1", "-1:2", "1.5:2", "a", "1:99999999999999999999"}) {
    EXPECT_THAT(message_of([&] { parse_stage_weights(text, "--stage-weights"); }),
                HasSubstr("--stage-weights"))
        << text;
  }
  const graph::Graph graph = chain({8, 8});
  EXPECT_THAT(message_of([&] {
                assign_by_share(graph, {1, 1, 1, 1, 1, 1, 1, 1, 1});
              }),
              HasSubstr("larger share"));
  EXPECT_THAT(message_of([&] { assign_balanced(graph, {.stages = 50}); }), HasSubstr("use fewer"));
  EXPECT_THAT(message_of([&] { assign_balanced(graph, {.stages = 2, .replicas = {1}}); }),
              HasSubstr("one per stage"));
  EXPECT_THAT(message_of([&] { assign_after(graph, {"l7"}); }), HasSubstr("did you mean"));
  EXPECT_THAT(message_of([&] {
                assign_after(graph, {"l1", "l0"});
              }),
              HasSubstr("does not come behind 'l1'"));
  EXPECT_THAT(message_of([&] { assign_after(graph, {"loss"}); }), HasSubstr("nothing to do"));
  EXPECT_THROW(check_stages(graph, std::vector<int>(graph.order().size(), 3), 2), std::logic_error);
}

}  // namespace
}  // namespace millrace::parallel
