#include "parallel/policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "graph/builder.h"
#include "models/models.h"
#include "parallel/boxing.h"
#include "parallel/localize.h"

namespace millrace::parallel {
namespace {

using ::testing::HasSubstr;

std::string refusal(const graph::Graph& graph, const ShardingPolicy& policy, int members) {
  try {
    shard(graph, policy, members);
  } catch (const InputError& error) {
    return error.what();
  }
  return "taken";
}

const graph::ShardingSignature& way_of(const ShardedGraph& sharded, const std::string& name) {
  for (graph::OperatorId id : sharded.graph.order()) {
    if (sharded.graph.op(id).name == name) return sharded.signatures[static_cast<size_t>(id)];
  }
  throw std::out_of_range(name);
}

graph::Sharding sharding_of(const ShardedGraph& sharded, const std::string& tensor) {
  return sharded.tensors.at(static_cast<size_t>(sharded.graph.find_tensor(tensor)));
}

int count_of(const graph::Graph& graph, const std::string& type) {
  int count = 0;
  for (graph::OperatorId id : graph.order()) count += graph.op(id).type == type;
  return count;
}

TEST(Policy, NamesAreReadBack) {
  for (auto value : {Parallelism::data, Parallelism::model, Parallelism::hybrid}) {
    EXPECT_EQ(parse_parallelism(name_of(value)), value);
  }
  EXPECT_EQ(parse_layer_sharding("split_input", "plan"), LayerSharding::split_input);
  try {
    parse_parallelism("both");
    ADD_FAILURE();
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(), "parallel is 'both'; use data, model or hybrid.");
  }
}

TEST(Policy, DataParallelismNeedsOneBoxingPerResult) {
  const graph::Graph whole = models::build_model("resnet18", {.batch = 8, .image = 64});
  const ShardedGraph sharded = shard(whole, {}, 4);
  for (graph::TensorId id = 0; id < whole.tensor_count(); ++id) {
    const graph::Role role = whole.tensor(id).role;
    if (!graph::is_persistent(role)) continue;
    const graph::Sharding wanted =
        role == graph::Role::input ? graph::split(0) : graph::broadcast();
    EXPECT_EQ(sharded.tensors[static_cast<size_t>(id)], wanted) << whole.tensor(id).name;
  }
  const graph::Graph local = localize(sharded, 3);
  EXPECT_EQ(local.order().size(), whole.order().size() + 3);
  EXPECT_EQ(count_of(local, "all_reduce"), 3);
  const graph::Tensor& images = local.tensor(local.find_tensor("images"));
  EXPECT_EQ(images.slice, (graph::Slice{0, 6, 8}));
  EXPECT_EQ(images.type.shape[0], 2);
}

TEST(Policy, HybridSplitsTheClassifierOnly) {
  const graph::Graph whole = models::build_model("vgg16", {.batch = 7, .classes = 1000});
  const ShardedGraph sharded = shard(whole, {Parallelism::hybrid, {}, false}, 7);
  EXPECT_EQ(sharding_of(sharded, "features.0.weight"), graph::broadcast());
  EXPECT_EQ(sharding_of(sharded, "labels"), graph::split(0));
  for (const char* layer : {"classifier.0", "classifier.3", "classifier.6"}) {
    EXPECT_EQ(sharding_of(sharded, std::string(layer) + ".weight").kind,
              graph::Sharding::Kind::split);
  }
  EXPECT_EQ(way_of(sharded, "loss").inputs[0], graph::split(1));
  const graph::Graph local = localize(sharded, 2);
  const graph::Tensor& classes = local.tensor(local.find_tensor("classifier.6.weight"));
  const bool by_output = classes.slice.axis == 0;
  EXPECT_EQ(classes.slice,
            by_output ? (graph::Slice{0, 285, 1000}) : (graph::Slice{1, 1170, 4096}));
  EXPECT_EQ(count_of(local, "split_softmax_loss"), 1);
  EXPECT_EQ(count_of(local, "softmax_statistics"), 1);  // shared by the loss and both accuracies
}

TEST(Policy, ModelParallelismKeepsTheBatchWhole) {
  const graph::Graph whole = models::build_model("alexnet", {.batch = 2, .classes = 10});
  const ShardedGraph sharded = shard(whole, {Parallelism::model, {}, false}, 4);
  EXPECT_EQ(sharding_of(sharded, "images"), graph::broadcast());
  EXPECT_EQ(sharding_of(sharded, "labels"), graph::broadcast());
  for (graph::TensorId id = 0; id < whole.tensor_count(); ++id) {
    if (whole.tensor(id).role != graph::Role::parameter || whole.tensor(id).type.shape.size() < 2)
      continue;
    EXPECT_EQ(sharded.tensors[static_cast<size_t>(id)].kind, graph::Sharding::Kind::split)
        << whole.tensor(id).name;
  }
}

TEST(Policy, ChoicesCanBeRepeatedForAnotherBatch) {
  const ShardedGraph first =
      shard(models::build_model("alexnet", {.batch = 64}), {Parallelism::model, {}, false}, 4);
  const auto layers = layer_choices(first);
  EXPECT_EQ(layers.size(), 8u);
  const ShardedGraph second =
      shard(models::build_model("alexnet", {.batch = 1}), {Parallelism::model, layers, false}, 4);
  EXPECT_EQ(layer_choices(second), layers);
}

TEST(Policy, MembersMeetInTheSameCollectives) {
  const graph::Graph whole =
      models::build_model("resnet18", {.batch = 11, .classes = 50, .image = 64});
  for (Parallelism parallelism : {Parallelism::data, Parallelism::model, Parallelism::hybrid}) {
    const ShardedGraph sharded = shard(whole, {parallelism, {}, true}, 3);
    const graph::Graph first = localize(sharded, 0);
    for (int member : {1, 2}) {
      const graph::Graph other = localize(sharded, member);
      ASSERT_EQ(other.order().size(), first.order().size());
      for (size_t i = 0; i < first.order().size(); ++i) {
        EXPECT_EQ(other.op(other.order()[i]).name, first.op(first.order()[i]).name);
        EXPECT_EQ(other.op(other.order()[i]).type, first.op(first.order()[i]).type);
      }
    }
  }
}

TEST(Policy, SaysWhatCannotBeDivided) {
  const graph::Graph net = models::build_model("alexnet", {.batch = 3, .classes = 5});
  EXPECT_EQ(refusal(net, {}, 4),
            "A batch of 3 samples cannot be divided over 4 devices; use at least 4.");
  EXPECT_EQ(refusal(net, {}, 3), "taken");
  EXPECT_THAT(refusal(net, {Parallelism::data, {{"fc", LayerSharding::data}}, false}, 2),
              HasSubstr("a layer 'fc', but no linear or convolution layer has that name"));
  EXPECT_THAT(
      refusal(net, {Parallelism::model, {{"classifier.6", LayerSharding::split_output}}, false}, 7),
      HasSubstr("Layer 'classifier.6' (linear) cannot be divided over 7 devices as split_output; "
                "its weights are 5x4096"));
  graph::Builder small;
  small.classify(small.flatten(small.batch_norm(small.image(4, 3, 1, 1), "norm")));
  const graph::Graph normalised = small.take();
  EXPECT_THAT(refusal(normalised, {}, 4), HasSubstr("more than one value per channel"));
  EXPECT_EQ(refusal(normalised, {Parallelism::data, {}, true}, 4), "taken");
}

TEST(Boxing, CostsWhatItsCollectivesMove) {
  EXPECT_EQ(boxing_bytes(graph::split(0), graph::broadcast(), 400, 4), 300);
  EXPECT_EQ(boxing_bytes(graph::partial(), graph::split(1), 400, 4), 300);
  EXPECT_EQ(boxing_bytes(graph::partial(), graph::broadcast(), 400, 4), 600);
  EXPECT_EQ(boxing_bytes(graph::split(0), graph::split(1), 400, 4), 300);
  EXPECT_EQ(boxing_bytes(graph::split(1), graph::split(1), 400, 4), 0);
  for (const graph::Sharding& to : {graph::broadcast(), graph::split(0), graph::partial()}) {
    EXPECT_EQ(boxing_bytes(graph::broadcast(), to, 400, 4), 0);
  }
  // The gradient of an all-gather is a reduce-scatter, of a slice it is added up for free.
  EXPECT_EQ(boxing_bytes_both_ways(graph::split(0), graph::broadcast(), 400, 4, true), 600);
  EXPECT_EQ(boxing_bytes_both_ways(graph::broadcast(), graph::split(0), 400, 4, true), 0);
  EXPECT_EQ(boxing_bytes_both_ways(graph::split(0), graph::broadcast(), 400, 4, false), 300);
}

}  // namespace
}  // namespace millrace::parallel
