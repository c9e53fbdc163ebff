#include "passes/inference.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "graph/operator_definition.h"
#include "passes/rewrite.h"

namespace millrace::passes {
namespace {

// The operators of a margin head and all that read what they make, such as sums over devices.
std::vector<bool> operators_of_head(const graph::Graph& graph) {
  std::vector<bool> found(static_cast<size_t>(graph.operator_count()), false);
  for (const graph::OperatorId id : graph.order()) {
    const graph::Operator& op = graph.op(id);
    found[static_cast<size_t>(id)] =
        graph::definition_of(op).is_head ||
        std::any_of(op.inputs.begin(), op.inputs.end(), [&](graph::TensorId input) {
          const graph::OperatorId producer = graph.tensor(input).producer;
          return producer != graph::kNone && found[static_cast<size_t>(producer)];
        });
  }
  return found;
}

// A margin head has nothing to say about samples whose class is not known: it goes, and with it
// what only it read.
void drop_head(graph::Graph& graph, std::vector<bool>& removed) {
  const std::vector<bool> of_head = operators_of_head(graph);
  std::vector<bool> read = result_flags(graph);
  bool any = false;
  for (auto id = graph.order().rbegin(); id != graph.order().rend(); ++id) {
    const graph::Operator& op = graph.op(*id);
    const bool is_head = of_head[static_cast<size_t>(*id)];
    any = any || is_head;
    const bool is_read =
        std::any_of(op.outputs.begin(), op.outputs.end(),
                    [&](graph::TensorId output) { return read[static_cast<size_t>(output)]; });
    if (is_head || (any && !is_read)) removed[static_cast<size_t>(*id)] = true;
    if (removed[static_cast<size_t>(*id)]) continue;
    for (graph::TensorId input : op.inputs) read[static_cast<size_t>(input)] = true;
  }
  std::vector<graph::TensorId> results;
  for (graph::TensorId id : graph.results()) {
    const graph::OperatorId producer = graph.tensor(id).producer;
    if (producer == graph::kNone || !removed[static_cast<size_t>(producer)]) results.push_back(id);
  }
  graph.set_results(std::move(results));
  for (graph::OperatorId id : graph.order()) {
    if (!removed[static_cast<size_t>(id)]) continue;
    for (graph::TensorId output : graph.op(id).outputs)
      graph.tensor(output).producer = graph::kNone;
  }
}

// What is exchanged in training goes, with the exchanges and what made it.
void run_alone(graph::Graph& graph, graph::Operator& op, std::vector<bool>& removed) {
  const graph::OperatorDefinition::Alone& alone = graph::definition_of(op).alone;
  graph::TensorId exchanged = op.inputs.at(alone.exchanged_input);
  while (graph.tensor(exchanged).producer != graph::kNone) {
    const graph::OperatorId producer = graph.tensor(exchanged).producer;
    removed[static_cast<size_t>(producer)] = true;
    graph.tensor(exchanged).producer = graph::kNone;
    const graph::Operator& maker = graph.op(producer);
    if (graph::definition_of(maker).exchange == graph::OperatorDefinition::Exchange::none) break;
    exchanged = maker.inputs.at(0);
  }
  op.inputs.erase(op.inputs.begin() + static_cast<int64_t>(alone.exchanged_input));
  op.type = alone.type;
}

// A result keeps its name when another tensor takes its place, for those who look for it.
void take_over_name(graph::Graph& graph, graph::TensorId old, graph::TensorId now) {
  const auto& results = graph.results();
  const bool known = std::find(results.begin(), results.end(), now) != results.end();
  if (known || graph::is_persistent(graph.tensor(now).role)) return;
  std::swap(graph.tensor(old).name, graph.tensor(now).name);
}

}  // namespace

void make_inference(graph::Graph& graph) {
  std::vector<graph::TensorId> stands_for(static_cast<size_t>(graph.tensor_count()));
  for (graph::TensorId id = 0; id < graph.tensor_count(); ++id)
    stands_for[static_cast<size_t>(id)] = id;
  std::vector<bool> removed(static_cast<size_t>(graph.operator_count()), false);
  drop_head(graph, removed);
  for (graph::OperatorId id : graph.order()) {
    if (removed[static_cast<size_t>(id)]) continue;
    graph::Operator& op = graph.op(id);
    for (graph::TensorId& input : op.inputs) input = stands_for[static_cast<size_t>(input)];
    const graph::OperatorDefinition& definition = graph::definition_of(op);
    if (!definition.alone.type.empty()) run_alone(graph, op, removed);
    if (definition.has_running_statistics) op.attributes.set("inference", true);
    if (definition.only_trains) {
      removed[static_cast<size_t>(id)] = true;
      stands_for[static_cast<size_t>(op.outputs[0])] = op.inputs[0];
      graph.tensor(op.outputs[0]).producer = graph::kNone;
    }
  }
  std::vector<graph::TensorId> results;
  for (graph::TensorId id : graph.results()) {
    results.push_back(stands_for[static_cast<size_t>(id)]);
    if (results.back() != id) take_over_name(graph, id, results.back());
  }
  graph.set_results(std::move(results));
  erase_operators(graph, removed);
}

}  // namespace millrace::passes
