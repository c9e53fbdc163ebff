// Every sharding that an operator lists: run on parts and put together, it is the operator run on
// the whole.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "devices.h"
#include "graph/operator_definition.h"

namespace millrace::testing {
namespace {

struct Case {
  std::string type;
  graph::Attributes attributes;
  std::vector<graph::Shape> inputs;
  bool labels = false;  // the last input is s32 labels
};

std::vector<Case> cases() {
  using Integers = graph::Attributes::Integers;
  const graph::Attributes window = {{"kernel", Integers{3, 3}},
                                    {"stride", Integers{2, 2}},
                                    {"padding", Integers{1, 1}},
                                    {"count_include_pad", false}};
  const auto convolution = [](int64_t groups) {
    return graph::Attributes{{"stride", Integers{1, 1}},
                             {"padding", Integers{1, 1}},
                             {"dilation", Integers{1, 1}},
                             {"groups", groups}};
  };
  const graph::Attributes norm = {{"epsilon", 1e-5}, {"momentum", 0.1}};
  graph::Attributes residual = norm;
  residual.set("residual", true);
  residual.set("relu", true);
  const graph::Shape x = {7, 8, 5, 6};
  const graph::Shape c = {8};
  const graph::Attributes dropout = {{"rate", 0.4}, {"stream", int64_t{11}}};
  graph::Attributes by_sample = dropout;
  by_sample.set("by_sample", true);
  const graph::Attributes smooth = {{"label_smoothing", 0.1}};
  std::vector<Case> all = {
      {"add", {}, {x, x}},
      {"add", {{"relu", true}}, {x, x}},
      {"average_pool", window, {x}},
      {"global_average_pool", {}, {x}},
      {"adaptive_average_pool", {{"output", Integers{2, 3}}}, {x}},
      {"max_pool", window, {x}},
      {"batch_norm", norm, {x, c, c, c, c}},
      {"batch_norm", residual, {x, c, c, c, c, x}},
      {"batch_norm", norm, {{9, 5}, {5}, {5}, {5}, {5}}},
      {"cast", {{"to", static_cast<int64_t>(graph::DataType::f32)}}, {x}},
      {"concat", {{"axis", int64_t{1}}}, {{7, 4, 3}, {7, 5, 3}}},
      {"concat", {{"axis", int64_t{0}}}, {{7, 4, 3}, {8, 4, 3}}},
      {"slice", {{"axis", int64_t{1}}, {"begin", int64_t{1}}, {"end", int64_t{4}}}, {x}},
      {"convolution", convolution(1), {x, {10, 8, 3, 3}}},
      {"convolution", convolution(1), {x, {10, 8, 3, 3}, {10}}},
      {"convolution", convolution(2), {x, {10, 4, 3, 3}}},
      {"convolution", convolution(8), {x, {8, 1, 3, 3}, {8}}},
      {"dropout", dropout, {x}},
      {"dropout", by_sample, {x}},
      {"dropout", dropout, {{7, 10}}},
      {"flatten", {}, {{7, 12, 2, 3}}},
      {"l2_normalize", {{"epsilon", 1e-12}}, {{7, 10}}},
      {"linear", {}, {{7, 9}, {10, 9}}},
      {"linear", {}, {{7, 9}, {10, 9}, {10}}},
      {"linear", {{"relu", true}}, {{7, 9}, {10, 9}, {10}}},
      {"prelu", {}, {x, c}},
      {"row_norm", {}, {{7, 9}}},
      {"scale_channels", {}, {x, {x[0], x[1], 1, 1}}},
      {"softmax_cross_entropy", {{"label_smoothing", 0.0}}, {{7, 10}, {7}}, true},
      {"softmax_cross_entropy", smooth, {{7, 1000}, {7}}, true},
      {"top_k", {{"k", int64_t{1}}}, {{40, 10}, {40}}, true},
      {"top_k", {{"k", int64_t{5}}}, {{40, 10}, {40}}, true},
  };
  for (const char* type : {"relu", "relu6", "sigmoid", "tanh", "hardsigmoid", "hardswish", "silu"})
    all.push_back({type, {}, {x}});
  return all;
}

graph::Graph graph_of(const Case& entry) {
  graph::Graph graph;
  std::vector<graph::TensorId> inputs;
  for (size_t i = 0; i < entry.inputs.size(); ++i) {
    graph::Tensor tensor;
    tensor.name = "input" + std::to_string(i);
    tensor.type.shape = entry.inputs[i];
    if (entry.labels && i + 1 == entry.inputs.size()) tensor.type.dtype = graph::DataType::s32;
    tensor.role = graph::Role::input;
    inputs.push_back(graph.add_tensor(std::move(tensor)));
  }
  graph.add_operator(entry.type, "tested", inputs, entry.attributes);
  return graph;
}

std::vector<Values> values_of(const graph::Graph& graph, const Case& entry) {
  std::vector<Values> values;
  for (size_t i = 0; i < entry.inputs.size(); ++i) {
    const graph::TensorType& type = graph.tensor(static_cast<graph::TensorId>(i)).type;
    const bool running_variance = entry.type == "batch_norm" && i == 4;
    values.push_back(type.dtype == graph::DataType::s32
                         ? random_labels(type, entry.inputs[0][1], 5)
                         : random_values(type, 20 + i, running_variance));
    // Few different values, so that ties have to be broken.
    if (entry.type == "top_k" && i == 0) {
      for (double& value : values.back()) value = std::round(2 * value);
    }
  }
  return values;
}

// Shares that add up to the tensor.
Values share_of(const Values& whole, int member, int members) {
  Values share = whole;
  for (double& value : share) {
    value = static_cast<float>(member + 1 < members ? value * (member + 1) * 0.1
                                                    : value * (1 - members * (members - 1) * 0.05));
  }
  return share;
}

// Whether every member gets rows, and flattened channels divide as their features do.
bool divides(const Case& entry, const graph::ShardingSignature& way, int members) {
  if (entry.type == "flatten" && way.inputs[0] == graph::split(1)) {
    return entry.inputs[0][1] % members == 0;
  }
  for (size_t i = 0; i < way.inputs.size(); ++i) {
    if (way.inputs[i].kind != graph::Sharding::Kind::split) continue;
    if (entry.inputs[i][static_cast<size_t>(way.inputs[i].axis)] < members) return false;
  }
  return true;
}

void check(const Case& entry, const graph::ShardingSignature& way, int members) {
  SCOPED_TRACE(entry.type + " over " + std::to_string(members) + ", input 0 " +
               graph::to_string(way.inputs[0]));
  parallel::ShardedGraph sharded = {graph_of(entry), members, true, {way}, way.inputs, {}};
  const graph::Graph& whole = sharded.graph;
  sharded.tensors.insert(sharded.tensors.end(), way.outputs.begin(), way.outputs.end());
  sharded.trained.assign(sharded.tensors.size(), false);
  const std::vector<Values> values = values_of(whole, entry);

  std::vector<graph::Graph> graphs;
  std::vector<TensorValues> starts;
  std::map<std::string, Values> named;
  TensorValues all;
  for (size_t i = 0; i < values.size(); ++i) {
    named["input" + std::to_string(i)] = values[i];
    all[static_cast<graph::TensorId>(i)] = values[i];
  }
  for (int m = 0; m < members; ++m) {
    graphs.push_back(parallel::localize(sharded, m));
    graphs.back().validate();
    starts.push_back(start_values(graphs.back(), named, whole));
    for (size_t i = 0; i < values.size(); ++i) {
      if (way.inputs[i] != graph::partial()) continue;
      starts.back()[static_cast<graph::TensorId>(i)] = share_of(values[i], m, members);
    }
  }
  const TensorValues expected = interpret(whole, all, {});
  const auto actual = run_members(graphs, starts);
  const bool expanded_loss =
      entry.type == "softmax_cross_entropy" && way.inputs[0] == graph::split(1);
  for (size_t i = 0; i < way.outputs.size(); ++i) {
    if (expanded_loss && i == 1) continue;  // the probabilities, which nobody else reads
    const graph::TensorId id = whole.op(0).outputs[i];
    std::vector<Values> parts;
    for (int m = 0; m < members; ++m) {
      const graph::TensorId local =
          graphs[static_cast<size_t>(m)].find_tensor(whole.tensor(id).name);
      ASSERT_NE(local, graph::kNone);
      parts.push_back(actual[static_cast<size_t>(m)].at(local));
    }
    const Values together = joined(parts, whole.tensor(id).type.shape, way.outputs[i]);
    EXPECT_LT(relative_error(together, expected.at(id)), 1e-5) << "output " << i;
  }
  for (int i : graph::definition_of(entry.type).mutated_inputs) {
    const auto input = static_cast<size_t>(i);
    std::vector<Values> parts;
    for (const TensorValues& member : actual) parts.push_back(member.at(i));
    const Values together = joined(parts, entry.inputs[input], way.inputs[input]);
    EXPECT_LT(relative_error(together, expected.at(i)), 1e-5) << "input " << i << " afterwards";
  }
}

TEST(OperatorShardings, PartsMakeTheWhole) {
  int checked = 0;
  for (const Case& entry : cases()) {
    const graph::Graph graph = graph_of(entry);
    graph::Inference inference = {graph.op(0), {}};
    for (graph::TensorId input : graph.op(0).inputs)
      inference.inputs.push_back(graph.tensor(input).type);
    for (const auto& way : graph::definition_of(entry.type).shardings(inference)) {
      for (int members : {2, 3, 4, 7}) {
        if (!divides(entry, way, members)) continue;
        check(entry, way, members);
        ++checked;
      }
    }
  }
  EXPECT_GT(checked, 200);
}

TEST(OperatorShardings, EveryOperatorThatListsThemIsChecked) {
  std::set<std::string_view> checked;
  const auto all = cases();
  for (const Case& entry : all) checked.insert(entry.type);
  for (const graph::OperatorDefinition& definition : graph::all_definitions()) {
    if (definition.shardings == nullptr) continue;
    if (definition.type.starts_with("margin_head")) continue;  // see Programs.MarginHeads
    EXPECT_TRUE(checked.contains(definition.type)) << definition.type;
  }
}

}  // namespace
}  // namespace millrace::testing
