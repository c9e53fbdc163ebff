#include "parallel/stage_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>

#include "base/error.h"
#include "parallel/partition_facts.h"

namespace millrace::parallel {
namespace {

constexpr std::string_view kLoss = "loss";

int stage_of(const std::vector<int>& stages, graph::OperatorId id) {
  return stages.at(static_cast<size_t>(id));
}

// Copies one stage's operators and the tensors they touch, keeping names.
class Cutting {
 public:
  Cutting(const graph::Graph& whole, const std::vector<int>& stages, int stage)
      : whole_(whole), stages_(stages), stage_(stage) {
    copies_.resize(static_cast<size_t>(whole.tensor_count()), graph::kNone);
  }

  graph::Graph run() {
    for (graph::OperatorId id : whole_.order()) {
      if (stage_of(stages_, id) == stage_) copy(whole_.op(id));
    }
    for (graph::TensorId id : whole_.results()) {
      const graph::OperatorId producer = whole_.tensor(id).producer;
      if (producer != graph::kNone && stage_of(stages_, producer) == stage_) {
        graph_.add_result(copies_[static_cast<size_t>(id)]);
      }
    }
    return std::move(graph_);
  }

 private:
  void copy(const graph::Operator& op) {
    std::vector<graph::TensorId> inputs;
    for (graph::TensorId id : op.inputs) inputs.push_back(input(id));
    const graph::OperatorId added =
        graph_.add_operator(op.type, op.name, std::move(inputs), op.attributes, op.phase);
    for (size_t i = 0; i < op.outputs.size(); ++i) {
      const graph::TensorId made = graph_.op(added).outputs.at(i);
      copies_[static_cast<size_t>(op.outputs[i])] = made;
      graph::Tensor tensor = whole_.tensor(op.outputs[i]);
      tensor.producer = added;
      graph_.tensor(made) = std::move(tensor);
    }
  }

  graph::TensorId input(graph::TensorId id) {
    graph::TensorId& known = copies_[static_cast<size_t>(id)];
    if (known != graph::kNone) return known;
    graph::Tensor tensor = whole_.tensor(id);
    if (tensor.producer != graph::kNone) tensor.role = graph::Role::input;
    tensor.producer = graph::kNone;
    known = graph_.add_tensor(std::move(tensor));
    return known;
  }

  const graph::Graph& whole_;
  const std::vector<int>& stages_;
  const int stage_;
  std::vector<graph::TensorId> copies_;  // by the whole graph's tensors
  graph::Graph graph_;
};

void require_parameters_apart(const graph::Graph& graph, const std::vector<int>& stages) {
  std::map<graph::TensorId, int> owner;
  for (graph::OperatorId id : graph.order()) {
    const int stage = stage_of(stages, id);
    for (graph::TensorId input : graph.op(id).inputs) {
      const graph::Role role = graph.tensor(input).role;
      if (role != graph::Role::parameter && role != graph::Role::buffer) continue;
      const auto [entry, added] = owner.insert({input, stage});
      if (added || entry->second == stage) continue;
      fail_input(
          "The parameter '{}' is used in stages {} and {}; put the layers that share it into one "
          "stage.",
          graph.tensor(input).name, entry->second, stage);
    }
  }
}

}  // namespace

std::vector<StageEdge> edges_between(const graph::Graph& forward, const std::vector<int>& stages) {
  const std::vector<bool> trained = passes::trained_tensors(forward);
  const std::vector<bool> of_loss = operators_of_loss(forward);
  const auto consumers = forward.consumers();
  std::vector<StageEdge> edges;
  for (graph::OperatorId producer : forward.order()) {
    const int from = stage_of(stages, producer);
    for (graph::TensorId output : forward.op(producer).outputs) {
      std::map<int, bool> readers;
      for (graph::OperatorId reader : consumers[static_cast<size_t>(output)]) {
        const int to = stage_of(stages, reader);
        if (to < from) {
          throw std::logic_error(fmt::format("'{}' goes from stage {} back to stage {}",
                                             forward.tensor(output).name, from, to));
        }
        if (to > from) readers[to] = readers[to] || of_loss[static_cast<size_t>(reader)];
      }
      for (const auto& [to, leads] : readers) {
        edges.push_back({forward.tensor(output).name, forward.tensor(output).type, from, to,
                         leads && trained[static_cast<size_t>(output)]});
      }
    }
  }
  return edges;
}

std::vector<std::pair<int, int>> skips_among(const std::vector<StageEdge>& edges) {
  std::set<std::pair<int, int>> pairs;
  for (const StageEdge& edge : edges) {
    if (edge.to > edge.from + 1) pairs.insert({edge.from, edge.to});
  }
  return {pairs.begin(), pairs.end()};
}

StageGraph cut(const graph::Graph& forward, const std::vector<int>& stages, int stage) {
  require_parameters_apart(forward, stages);
  StageGraph part;
  part.stage = stage;
  part.graph = Cutting(forward, stages, stage).run();
  for (const StageEdge& edge : edges_between(forward, stages)) {
    if (edge.to == stage) part.receives.push_back(edge);
    if (edge.from != stage) continue;
    part.sends.push_back(edge);
    const graph::TensorId id = part.graph.find_tensor(edge.name);
    const auto& results = part.graph.results();
    if (std::find(results.begin(), results.end(), id) == results.end()) part.graph.add_result(id);
  }
  part.graph.validate();
  return part;
}

std::string arriving_gradient(const StageEdge& edge) {
  return fmt::format("{}.grad_from_{}", edge.name, edge.to);
}

passes::BackwardPass differentiate_stage(StageGraph& stage) {
  graph::Graph& graph = stage.graph;
  std::vector<passes::GradientSeed> seeds;
  const graph::TensorId loss = graph.find_tensor(kLoss);
  if (loss != graph::kNone) seeds.push_back({loss});
  for (const StageEdge& edge : stage.sends) {
    if (!edge.has_gradient) continue;
    const graph::TensorId sent = graph.find_tensor(edge.name);
    graph::Tensor arriving;
    arriving.name = arriving_gradient(edge);
    arriving.type = graph.tensor(sent).type;
    arriving.role = graph::Role::input;
    arriving.slice = graph.tensor(sent).slice;
    seeds.push_back({sent, graph.add_tensor(std::move(arriving))});
  }
  std::vector<graph::TensorId> wanted;
  for (const StageEdge& edge : stage.receives) {
    if (edge.has_gradient) wanted.push_back(graph.find_tensor(edge.name));
  }
  passes::BackwardPass pass = passes::differentiate(graph, seeds, wanted);
  if (pass.inputs.size() != wanted.size()) {
    throw std::logic_error(
        fmt::format("stage {} does not make every gradient that it should send", stage.stage));
  }
  return pass;
}

}  // namespace millrace::parallel
