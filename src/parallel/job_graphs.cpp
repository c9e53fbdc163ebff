#include "parallel/job_graphs.h"

#include <algorithm>

#include "base/error.h"
#include "graph/margin_head.h"
#include "graph/operator_definition.h"
#include "parallel/localize.h"
#include "parallel/partition.h"
#include "parallel/shard.h"

namespace millrace::parallel {
namespace {

std::vector<int> assign(const graph::Graph& network, const Plan& plan) {
  const int stages = plan.stage_count();
  if (stages == 1) return std::vector<int>(static_cast<size_t>(network.operator_count()), 0);
  if (!plan.cut_after.empty()) return assign_after(network, plan.cut_after);
  if (!plan.stage_weights.empty()) return assign_by_share(network, plan.stage_weights);
  BalanceOptions options;
  options.stages = stages;
  for (const Placement& stage : plan.stages) options.replicas.push_back(stage.size());
  return assign_balanced(network, options);
}

// A margin head takes one step of its centres for each step of the job, all its devices together.
void check_head(const graph::Graph& network, const Plan& plan) {
  const auto& order = network.order();
  const auto found = std::find_if(order.begin(), order.end(), [&](graph::OperatorId id) {
    return graph::definition_of(network.op(id)).is_head;
  });
  if (found == order.end()) return;
  if (plan.round_robin && plan.stages.back().size() > 1) {
    fail_input(
        "‹replicas› roundrobin gives the class centres of ‹head› to devices that take turns; use "
        "‹replicas› split, or one device for the last stage.");
  }
}

// Of a step in micro-batches, for a head that draws its sample of classes by them. Each of the
// members has room for all labels that are its own.
graph::TensorId add_step_labels(graph::Graph& graph, int64_t batch, int64_t mean_over,
                                int64_t members) {
  graph::Tensor tensor;
  tensor.name = graph::kStepLabels;
  tensor.role = graph::Role::input;
  const int64_t rows = (batch + members - 1) / members;
  tensor.type = {{mean_over / batch * members * rows}, graph::DataType::s32};
  return graph.add_tensor(std::move(tensor));
}

}  // namespace

graph::Graph with_batch(const graph::Graph& network, int64_t batch, int64_t mean_over,
                        int members) {
  graph::Graph graph;
  std::vector<graph::TensorId> ids(static_cast<size_t>(network.tensor_count()), graph::kNone);
  for (graph::TensorId id = 0; id < network.tensor_count(); ++id) {
    if (network.tensor(id).producer != graph::kNone) continue;
    graph::Tensor tensor = network.tensor(id);
    if (tensor.role == graph::Role::input) tensor.type.shape.at(0) = batch;
    ids[static_cast<size_t>(id)] = graph.add_tensor(std::move(tensor));
  }
  for (graph::OperatorId id : network.order()) {
    const graph::Operator& op = network.op(id);
    std::vector<graph::TensorId> inputs;
    for (graph::TensorId input : op.inputs) inputs.push_back(ids[static_cast<size_t>(input)]);
    graph::Attributes attributes = op.attributes;
    const graph::OperatorDefinition& definition = graph::definition_of(op);
    const bool samples = definition.samples_classes && attributes.number("sample_rate") < 1;
    if (samples && mean_over > batch) {
      inputs.push_back(add_step_labels(graph, batch, mean_over, members));
    }
    if (definition.averages_samples) attributes.set("samples", mean_over);
    const graph::OperatorId added =
        graph.add_operator(op.type, op.name, inputs, attributes, op.phase);
    for (size_t i = 0; i < op.outputs.size(); ++i) {
      const graph::TensorId output = graph.op(added).outputs[i];
      graph.tensor(output).name = network.tensor(op.outputs[i]).name;
      ids[static_cast<size_t>(op.outputs[i])] = output;
    }
  }
  for (graph::TensorId id : network.results()) graph.add_result(ids[static_cast<size_t>(id)]);
  return graph;
}

JobGraphs::JobGraphs(const graph::Graph& network, const Plan& plan) : plan_(plan) {
  const graph::TensorId images = network.find_tensor("images");
  const int64_t samples = network.tensor(images).type.shape.at(0);
  check(plan, samples);
  check_head(network, plan);
  require_layers(network, plan.sharding);
  micro_batch_ = samples / plan.micro_batches;
  const bool divided = plan.micro_batches > 1;
  const graph::Graph graph =
      divided ? with_batch(network, micro_batch_, samples, members(plan.stage_count() - 1))
              : network;
  const std::vector<int> stage_of_operator = assign(graph, plan);
  if (plan.stage_count() == 1) {
    stages_.push_back({{0, graph, {}, {}}, {}});
  } else {
    edges_ = edges_between(graph, stage_of_operator);
    for (int stage = 0; stage < plan.stage_count(); ++stage) {
      stages_.push_back({cut(graph, stage_of_operator, stage), {}});
    }
  }
  for (int stage = 0; stage < plan.stage_count(); ++stage) {
    if (members(stage) == 1) continue;
    Stage& one = stages_[static_cast<size_t>(stage)];
    one.sharded = shard(one.whole.graph, plan.sharding, members(stage));
  }
}

int JobGraphs::members(int stage) const {
  return plan_.round_robin ? 1 : plan_.stages[static_cast<size_t>(stage)].size();
}

StageGraph JobGraphs::local(int stage, int member) const {
  const Stage& one = stages_[static_cast<size_t>(stage)];
  StageGraph graph = one.whole;
  if (one.sharded) graph.graph = localize(*one.sharded, member);
  return graph;
}

}  // namespace millrace::parallel
