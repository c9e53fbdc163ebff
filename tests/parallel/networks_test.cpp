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
  Graph graph;
  std::map<std::string, TensorId> gradients;

  explicit Trained(Graph forward) : graph(std::move(forward)) {
    fuse(graph);
    graph.validate();
    for (const auto& pair : differentiate(graph, graph.find_tensor("loss"))) {
      gradients[graph.tensor(pair.parameter).name] = pair.gradient;
    }
    graph.validate();
  }
};

Sharding sharding_of(const Tensor& tensor) {
  return tensor.slice.axis == kNone ? broadcast() : split(tensor.slice.axis);
}

void compare(const Graph& forward, const ShardingPolicy& policy, int members) {
  SCOPED_TRACE(std::string(name_of(policy.parallelism)) + " over " + std::to_string(members));
  const auto values = first_values(forward);
  const Trained whole(forward);
  const TensorValues expected =
      interpret(whole.graph, start_values(whole.graph, values, forward), {});

  const ShardedGraph sharded = shard(forward, policy, members);
  std::vector<Graph> graphs;
  std::vector<TensorValues> starts;
  std::map<std::string, TensorId> gradients;
  for (int m = 0; m < members; ++m) {
    Trained member(localize(sharded, m));
    starts.push_back(start_values(member.graph, values, forward));
    graphs.push_back(std::move(member.graph));
    gradients = member.gradients;
  }
  const auto actual = run_members(graphs, starts);

  const auto parts = [&](TensorId id) {
    std::vector<Values> list;
    for (const TensorValues& member : actual) list.push_back(member.at(id));
    return list;
  };
  for (const char* name : {"loss", "top1", "top5"}) {
    const TensorId id = graphs[0].find_tensor(std::string(name) + ".total");
    ASSERT_NE(id, kNone) << name;
    const Values& value = expected.at(whole.graph.find_tensor(name));
    EXPECT_LT(relative_error(joined(parts(id), {1}, broadcast()), value), 1e-5) << name;
  }
  ASSERT_EQ(gradients.size(), whole.gradients.size());
  for (const auto& [name, gradient] : gradients) {
    const Tensor& parameter = graphs[0].tensor(graphs[0].find_tensor(name));
    const Sharding sharding = sharding_of(parameter);
    const Shape& shape = forward.tensor(forward.find_tensor(name)).type.shape;
    const Values together =
        joined(parts(gradient), shape, sharding == broadcast() ? partial() : sharding);
    EXPECT_LT(relative_error(together, expected.at(whole.gradients.at(name))), 1e-5) << name;
  }
  for (TensorId id = 0; id < graphs[0].tensor_count(); ++id) {
    const Tensor& tensor = graphs[0].tensor(id);
    if (tensor.role != Role::buffer) continue;
    const TensorId original = forward.find_tensor(tensor.name);
    const Values together =
        joined(parts(id), forward.tensor(original).type.shape, sharding_of(tensor));
    EXPECT_LT(relative_error(together, expected.at(original)), 1e-5) << tensor.name;
  }
}

void compare_all(Graph (*network)(int64_t)) {
  for (int members : {1, 2, 3, 4, 7}) {
    for (Parallelism parallelism : {Parallelism::data, Parallelism::model, Parallelism::hybrid}) {
      compare(network(7), {parallelism, {}, true}, members);
    }
  }
  compare(network(16), {Parallelism::data, {}, true}, 4);
}

TEST(Networks, AlexnetLike) { compare_all(alexnet_like); }
TEST(Networks, VggLike) { compare_all(vgg_like); }
TEST(Networks, ResnetLike) { compare_all(resnet_like); }

TEST(Networks, Evaluation) {
  for (Parallelism parallelism : {Parallelism::data, Parallelism::model, Parallelism::hybrid}) {
    Graph whole = resnet_like(8);
    auto values = first_values(whole);
    for (auto& [name, drawn] : values) {
      if (!name.ends_with(".running_var")) continue;
      for (double& value : drawn) value = 1.5 + value / 2;
    }
    const ShardedGraph sharded = shard(whole, {parallelism, {}, true}, 3);
    std::vector<Graph> graphs;
    std::vector<TensorValues> starts;
    for (int m = 0; m < 3; ++m) {
      graphs.push_back(localize(sharded, m));
      make_inference(graphs.back());
      graphs.back().validate();
      starts.push_back(start_values(graphs.back(), values, whole));
    }
    const auto actual = run_members(graphs, starts);
    const Graph forward = whole;
    make_inference(whole);
    const TensorValues expected = interpret(whole, start_values(whole, values, forward), {});
    std::vector<Values> logits;
    for (int m = 0; m < 3; ++m) {
      const Graph& graph = graphs[static_cast<size_t>(m)];
      const TensorValues& member = actual[static_cast<size_t>(m)];
      logits.push_back(member.at(graph.find_tensor("logits")));
      for (const char* name : {"loss", "top1", "top5"}) {
        const TensorId total = graph.find_tensor(std::string(name) + ".total");
        EXPECT_LT(relative_error(member.at(total), expected.at(whole.find_tensor(name))), 1e-5);
      }
    }
    const TensorId id = whole.find_tensor("logits");
    const Sharding sharding = sharded.tensors[static_cast<size_t>(id)];
    EXPECT_LT(
        relative_error(joined(logits, whole.tensor(id).type.shape, sharding), expected.at(id)),
        1e-5);
  }
}

TEST(Networks, LayersDividedByHand) {
  const auto output = LayerSharding::split_output;
  const auto input = LayerSharding::split_input;
  const auto data = LayerSharding::data;
  for (const auto& layers : std::vector<std::map<std::string, LayerSharding>>{
           {{"f1", output}, {"f2", input}, {"f3", output}},
           {{"f1", input}, {"f2", output}, {"f3", input}},
           {{"f1", output}, {"f2", data}, {"f3", output}},
           {{"c2", output}, {"f1", input}, {"f2", output}, {"f3", data}},
           {{"c1", output}, {"c2", input}},
       }) {
    for (Parallelism base : {Parallelism::data, Parallelism::hybrid}) {
      compare(alexnet_like(7), {base, layers, false}, 3);
    }
  }
}

}  // namespace
}  // namespace millrace::testing
