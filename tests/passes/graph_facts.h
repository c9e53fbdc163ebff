// Questions that tests ask of a graph.
#pragma once

#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "graph/builder.h"
#include "graph/graph.h"

namespace millrace::passes {

// The types of the operators in order.
inline std::vector<std::string> types_of(const graph::Graph& graph) {
  std::vector<std::string> types;
  for (graph::OperatorId id : graph.order()) types.push_back(graph.op(id).type);
  return types;
}

inline std::map<std::string, int> count_types(const graph::Graph& graph) {
  std::map<std::string, int> counts;
  for (graph::OperatorId id : graph.order()) ++counts[graph.op(id).type];
  return counts;
}

// The operators in order with this type.
inline std::vector<graph::OperatorId> all_of_type(const graph::Graph& graph,
                                                  std::string_view type) {
  std::vector<graph::OperatorId> found;
  for (graph::OperatorId id : graph.order()) {
    if (graph.op(id).type == type) found.push_back(id);
  }
  return found;
}

// The operator in the order with this name; throws if there is none.
inline graph::OperatorId operator_named(const graph::Graph& graph, std::string_view name) {
  for (graph::OperatorId id : graph.order()) {
    if (graph.op(id).name == name) return id;
  }
  throw std::runtime_error("no operator " + std::string(name) + " in\n" + graph::to_text(graph));
}

inline int position_of(const graph::Graph& graph, graph::OperatorId id) {
  for (size_t i = 0; i < graph.order().size(); ++i) {
    if (graph.order()[i] == id) return static_cast<int>(i);
  }
  throw std::runtime_error("operator is not in the order");
}

inline graph::TensorId loss_of(const graph::Graph& graph) { return graph.results().at(0); }

// Two residual blocks, the first with a convolution on the short cut, then a classifier.
inline graph::Graph small_residual_network() {
  graph::Builder net;
  graph::Value x = net.image(4, 3, 16, 16);
  x = net.convolution(x, "stem", {.channels = 8, .kernel = 3, .padding = 1});
  x = net.relu(net.batch_norm(x, "stem_norm"));
  x = net.max_pool(x, {.kernel = 2, .stride = 2});
  for (int block = 1; block <= 2; ++block) {
    const std::string name = "block" + std::to_string(block);
    graph::Value shortcut = x;
    if (block == 1) {
      shortcut = net.convolution(x, name + ".short", {.channels = 16});
      shortcut = net.batch_norm(shortcut, name + ".short_norm");
    }
    graph::Value y = net.convolution(x, name + ".a", {.channels = 16, .kernel = 3, .padding = 1});
    y = net.relu(net.batch_norm(y, name + ".a_norm"));
    y = net.convolution(y, name + ".b", {.channels = 16, .kernel = 3, .padding = 1});
    y = net.batch_norm(y, name + ".b_norm");
    x = net.relu(net.add(y, shortcut));
  }
  x = net.flatten(net.global_average_pool(x));
  net.classify(net.linear(x, "head", {.features = 10}));
  return net.take();
}

}  // namespace millrace::passes
