#include "parallel/partition.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <stdexcept>

#include "base/error.h"
#include "base/parts.h"
#include "base/text.h"
#include "graph/operator_definition.h"
#include "parallel/partition_facts.h"
#include "passes/autodiff.h"

namespace millrace::parallel {
namespace {

constexpr int64_t kMostStages = 1000;
constexpr int kUnassigned = -1;

// Operators between a parameter and the loss that belong to the backbone, in order.
std::vector<graph::OperatorId> backbone_of(const graph::Graph& graph) {
  const std::vector<bool> trained = passes::trained_tensors(graph);
  const std::vector<bool> of_loss = operators_of_loss(graph);
  std::vector<bool> joins(at(graph.operator_count()), false);
  std::vector<graph::OperatorId> backbone;
  for (graph::OperatorId id : graph.order()) {
    if (!of_loss[at(id)]) continue;
    int trained_inputs = 0;
    bool follows = false;
    for (graph::TensorId input : graph.op(id).inputs) {
      trained_inputs += trained[at(input)] ? 1 : 0;
      const graph::OperatorId producer = graph.tensor(input).producer;
      follows = follows || (producer != graph::kNone && joins[at(producer)]);
    }
    joins[at(id)] = trained_inputs >= 2;
    if (joins[at(id)] || follows) backbone.push_back(id);
  }
  return backbone;
}

// Gives the other operators the stage of what they read, or of what reads them, and those with
// labels the last.
void attach_others(const graph::Graph& graph, std::vector<int>& stages, int count) {
  for (graph::OperatorId id : graph.order()) {
    int& stage = stages[at(id)];
    for (graph::TensorId input : graph.op(id).inputs) {
      const graph::OperatorId producer = graph.tensor(input).producer;
      if (producer != graph::kNone) stage = std::max(stage, stages[at(producer)]);
    }
  }
  const auto consumers = graph.consumers();
  for (auto id = graph.order().rbegin(); id != graph.order().rend(); ++id) {
    int& stage = stages[at(*id)];
    if (stage != kUnassigned) continue;
    stage = count - 1;
    for (graph::TensorId output : graph.op(*id).outputs) {
      for (graph::OperatorId reader : consumers[at(output)])
        stage = std::min(stage, stages[at(reader)]);
    }
  }
  const std::vector<bool> last = operators_of_labels(graph);
  for (graph::OperatorId id : graph.order()) {
    if (last[at(id)]) stages[at(id)] = count - 1;
  }
}

bool has_parameter(const graph::Graph& graph, graph::OperatorId id) {
  const auto& inputs = graph.op(id).inputs;
  return std::any_of(inputs.begin(), inputs.end(), [&](graph::TensorId input) {
    const graph::Role role = graph.tensor(input).role;
    return role == graph::Role::parameter || role == graph::Role::buffer;
  });
}

// The position in the order behind the layer or block of this name.
size_t end_of_layer(const graph::Graph& graph, const std::string& name) {
  size_t end = 0;
  std::vector<std::string> names;
  for (size_t i = 0; i < graph.order().size(); ++i) {
    names.push_back(graph.op(graph.order()[i]).name);
    if (names.back() == name) return i + 1;
    if (names.back().starts_with(name + ".")) end = i + 1;
  }
  if (end == 0 || name.empty()) {
    const std::string close = nearest(name, names);
    fail_input("‹cut_after› names '{}', but the network has no such layer{}.", name,
               close.empty() ? "" : fmt::format(" (did you mean '{}'?)", close));
  }
  while (end < graph.order().size() && !has_parameter(graph, graph.order()[end])) ++end;
  return end;
}

}  // namespace

std::vector<int64_t> parse_stage_weights(std::string_view text, std::string_view flag) {
  std::vector<int64_t> weights;
  for (const std::string& part : split(text, ':')) {
    int64_t weight = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), weight);
    if (error != std::errc() || end != part.data() + part.size() || weight < 1 ||
        weight > kMostStageWeight) {
      fail_input("{} has '{}' where a whole number from 1 to {} should be; write weights as 11:7.",
                 flag, part, kMostStageWeight);
    }
    weights.push_back(weight);
  }
  if (std::ssize(weights) > kMostStages) {
    fail_input("{} has {} weights; at most {} stages are possible.", flag, weights.size(),
               kMostStages);
  }
  return weights;
}

std::vector<int> assign_by_share(const graph::Graph& forward, const std::vector<int64_t>& weights) {
  const std::vector<graph::OperatorId> backbone = backbone_of(forward);
  int64_t slots = 0;
  for (int64_t weight : weights) slots += weight;
  const auto size = std::ssize(backbone);
  std::vector<int> stages(at(forward.operator_count()), kUnassigned);
  int64_t slot = 0;
  int64_t position = 0;
  for (size_t stage = 0; stage < weights.size(); ++stage) {
    slot += weights[stage];
    const int64_t end = part_begin(size, static_cast<int>(slot), static_cast<int>(slots));
    if (end == position) {
      fail_input("Stage {} would have none of the network's {} operators; give it a larger share.",
                 stage, size);
    }
    for (; position < end; ++position) {
      stages[at(backbone[static_cast<size_t>(position)])] = static_cast<int>(stage);
    }
  }
  const int count = static_cast<int>(weights.size());
  attach_others(forward, stages, count);
  check_stages(forward, stages, count);
  return stages;
}

std::vector<int> assign_after(const graph::Graph& forward, const std::vector<std::string>& layers) {
  std::vector<int> stages(at(forward.operator_count()), kUnassigned);
  const auto& order = forward.order();
  const std::vector<bool> last = operators_of_labels(forward);
  size_t position = 0;
  for (size_t stage = 0; stage < layers.size(); ++stage) {
    const size_t end = end_of_layer(forward, layers[stage]);
    if (end <= position) {
      fail_input("‹cut_after› names '{}', which does not come behind '{}'.", layers[stage],
                 layers[stage - 1]);
    }
    for (; position < end; ++position) stages[at(order[position])] = static_cast<int>(stage);
  }
  if (!layers.empty() && (position == order.size() || last[at(order[position - 1])])) {
    fail_input("‹cut_after› names '{}', behind which the last stage would have nothing to do.",
               layers.back());
  }
  const int count = static_cast<int>(layers.size()) + 1;
  for (; position < order.size(); ++position) stages[at(order[position])] = count - 1;
  attach_others(forward, stages, count);
  check_stages(forward, stages, count);
  return stages;
}

void check_stages(const graph::Graph& forward, const std::vector<int>& stages, int count) {
  if (std::ssize(stages) != forward.operator_count()) {
    throw std::logic_error(fmt::format("{} operators have stages, but there are {}", stages.size(),
                                       forward.operator_count()));
  }
  std::vector<int64_t> sizes(static_cast<size_t>(count), 0);
  for (graph::OperatorId id : forward.order()) {
    const int stage = stages[at(id)];
    const std::string& name = forward.op(id).name;
    if (stage < 0 || stage >= count) {
      throw std::logic_error(fmt::format("operator '{}' is in no stage", name));
    }
    ++sizes[static_cast<size_t>(stage)];
    for (graph::TensorId input : forward.op(id).inputs) {
      const graph::OperatorId producer = forward.tensor(input).producer;
      if (producer != graph::kNone && stages[at(producer)] > stage) {
        throw std::logic_error(fmt::format("operator '{}' reads from a later stage", name));
      }
    }
  }
  for (int stage = 0; stage < count; ++stage) {
    if (sizes[static_cast<size_t>(stage)] == 0) {
      fail_input("Stage {} would have nothing to compute; use fewer stages or other cuts.", stage);
    }
  }
}

}  // namespace millrace::parallel
