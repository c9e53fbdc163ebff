// Whole networks: divided over members they have the loss, accuracies, gradients and running
// statistics of one device.
#include "networks.h"

#include <gtest/gtest.h>

#include "devices.h"
#include "passes/autodiff.h"
#include "passes/fusion.h"
#include "passes/inference.h"

namespace millrace::testing {
namespace {

// A graph with its backward pass, and where the gradients are.
struct Trained {
  graph::Graph graph;
  std::map<std::string, graph::TensorId> gradients;

  explicit Trained(graph::Graph forward) : graph(std::move(forward)) {
    passes::fuse(graph);
    graph.validate();
    for (const auto& pair : passes::differentiate(graph, graph.find_tensor("loss"))) {
      gradients[graph.tensor(pair.parameter).name] = pair.gradient;
    }
    graph.validate();
  }
};

graph::Sharding sharding_of(const graph::Tensor& tensor) {
  return tensor.slice.axis == graph::kNone ? graph::broadcast() : graph::split(tensor.slice.axis);
}

void compare(const graph::Graph& forward, const parallel::ShardingPolicy& policy, int members) {
  SCOPED_TRACE(std::string(parallel::name_of(policy.parallelism)) + " over " +
               std::to_string(members));
  const auto values = first_values(forward);
  const Trained whole(forward);
  const TensorValues expected =
      interpret(whole.graph, start_values(whole.graph, values, forward), {});

  const parallel::ShardedGraph sharded = parallel::shard(forward, policy, members);
  std::vector<graph::Graph> graphs;
  std::vector<TensorValues> starts;
  std::map<std::string, graph::TensorId> gradients;
  for (int m = 0; m < members; ++m) {
    Trained member(parallel::localize(sharded, m));
    starts.push_back(start_values(member.graph, values, forward));
    graphs.push_back(std::move(member.graph));
    gradients = member.gradients;
  }
  const auto actual = run_members(graphs, starts);

  const auto parts = [&](graph::TensorId id) {
    std::vector<Values> list;
    for (const TensorValues& member : actual) list.push_back(member.at(id));
    return list;
  };
  for (const char* name : {"loss", "top1", "top5"}) {
    const graph::TensorId id = graphs[0].find_tensor(std::string(name) + ".total");
    ASSERT_NE(id, graph::kNone) << name;
    const Values& value = expected.at(whole.graph.find_tensor(name));
    EXPECT_LT(relative_error(joined(parts(id), {1}, graph::broadcast()), value), 1e-5) << name;
  }
  ASSERT_EQ(gradients.size(), whole.gradients.size());
  for (const auto& [name, gradient] : gradients) {
    const graph::Tensor& parameter = graphs[0].tensor(graphs[0].find_tensor(name));
    const graph::Sharding sharding = sharding_of(parameter);
    const graph::Shape& shape = forward.tensor(forward.find_tensor(name)).type.shape;
    const Values together = joined(parts(gradient), shape,
                                   sharding == graph::broadcast() ? graph::partial() : sharding);
    EXPECT_LT(relative_error(together, expected.at(whole.gradients.at(name))), 1e-5) << name;
  }
  for (graph::TensorId id = 0; id < graphs[0].tensor_count(); ++id) {
    const graph::Tensor& tensor = graphs[0].tensor(id);
    if (tensor.role != graph::Role::buffer) continue;
    const graph::TensorId original = forward.find_tensor(tensor.name);
    const Values together =
        joined(parts(id), forward.tensor(original).type.shape, sharding_of(tensor));
    EXPECT_LT(relative_error(together, expected.at(original)), 1e-5) << tensor.name;
  }
}

void compare_all(graph::Graph (*network)(int64_t)) {
  for (int members : {1, 2, 3, 4, 7}) {
    for (parallel::Parallelism parallelism :
         {parallel::Parallelism::data, parallel::Parallelism::model,
          parallel::Parallelism::hybrid}) {
      compare(network(7), {parallelism, {}, true}, members);
    }
  }
  compare(network(16), {parallel::Parallelism::data, {}, true}, 4);
}

TEST(Networks, AlexnetLike) { compare_all(alexnet_like); }
TEST(Networks, VggLike) { compare_all(vgg_like); }
TEST(Networks, ResnetLike) { compare_all(resnet_like); }

TEST(Networks, Evaluation) {
  for (parallel::Parallelism parallelism :
       {parallel::Parallelism::data, parallel::Parallelism::model, parallel::Parallelism::hybrid}) {
    graph::Graph whole = resnet_like(8);
    auto values = first_values(whole);
    for (auto& [name, drawn] : values) {
      if (!name.ends_with(".running_var")) continue;
      for (double& value : drawn) value = 1.5 + value / 2;
    }
    const parallel::ShardedGraph sharded = parallel::shard(whole, {parallelism, {}, true}, 3);
    std::vector<graph::Graph> graphs;
    std::vector<TensorValues> starts;
    for (int m = 0; m < 3; ++m) {
      graphs.push_back(parallel::localize(sharded, m));
      passes::make_inference(graphs.back());
      graphs.back().validate();
      starts.push_back(start_values(graphs.back(), values, whole));
    }
    const auto actual = run_members(graphs, starts);
    const graph::Graph forward = whole;
    passes::make_inference(whole);
    const TensorValues expected = interpret(whole, start_values(whole, values, forward), {});
    std::vector<Values> logits;
    for (int m = 0; m < 3; ++m) {
      const graph::Graph& graph = graphs[static_cast<size_t>(m)];
      const TensorValues& member = actual[static_cast<size_t>(m)];
      logits.push_back(member.at(graph.find_tensor("logits")));
      for (const char* name : {"loss", "top1", "top5"}) {
        const graph::TensorId total = graph.find_tensor(std::string(name) + ".total");
        EXPECT_LT(relative_error(member.at(total), expected.at(whole.find_tensor(name))), 1e-5);
      }
    }
    const graph::TensorId id = whole.find_tensor("logits");
    const graph::Sharding sharding = sharded.tensors[static_cast<size_t>(id)];
    EXPECT_LT(
        relative_error(joined(logits, whole.tensor(id).type.shape, sharding), expected.at(id)),
        1e-5);
  }
}

TEST(Networks, LayersDividedByHand) {
  const auto output = parallel::LayerSharding::split_output;
  const auto input = parallel::LayerSharding::split_input;
  const auto data = parallel::LayerSharding::data;
  for (const auto& layers : std::vector<std::map<std::string, parallel::LayerSharding>>{
           {{"f1", output}, {"f2", input}, {"f3", output}},
           {{"f1", input}, {"f2", output}, {"f3", input}},
           {{"f1", output}, {"f2", data}, {"f3", output}},
           {{"c2", output}, {"f1", input}, {"f2", output}, {"f3", data}},
           {{"c1", output}, {"c2", input}},
       }) {
    for (parallel::Parallelism base :
         {parallel::Parallelism::data, parallel::Parallelism::hybrid}) {
      compare(alexnet_like(7), {base, layers, false}, 3);
    }
  }
}

}  // namespace
}  // namespace millrace::testing
