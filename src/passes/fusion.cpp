#include "passes/fusion.h"

#include <algorithm>

#include "graph/operator_definition.h"
#include "passes/rewrite.h"

namespace millrace::passes {
namespace {

class Fuser {
 public:
  explicit Fuser(graph::Graph& graph)
      : graph_(graph),
        original_(graph.order()),
        order_(graph.order()),
        position_(static_cast<size_t>(graph.operator_count()), -1),
        depth_(static_cast<size_t>(graph.tensor_count()), 0),
        readers_(graph.consumers()),
        is_result_(result_flags(graph)) {
    for (size_t i = 0; i < order_.size(); ++i) {
      position_[static_cast<size_t>(order_[i])] = static_cast<int>(i);
      const graph::Operator& op = graph.op(order_[i]);
      int depth = 0;
      for (graph::TensorId input : op.inputs)
        depth = std::max(depth, depth_[static_cast<size_t>(input)]);
      for (graph::TensorId output : op.outputs) depth_[static_cast<size_t>(output)] = depth + 1;
    }
  }

  void run() {
    for_each(&Definition::is_sum, [this](graph::OperatorId id) { sum_into_norm(id); });
    for_each(&Definition::is_relu, [this](graph::OperatorId id) { relu_into_producer(id); });
    for_each(&Definition::is_bend, [this](graph::OperatorId id) { bend_into_norm(id); });
    for_each(&Definition::can_begin_with_relu,
             [this](graph::OperatorId id) { relu_into_reader(id); });
    std::erase(order_, graph::kNone);
    graph_.set_order(order_);
  }

 private:
  using Definition = graph::OperatorDefinition;

  template <typename Rule>
  void for_each(bool Definition::*is_meant, Rule rule) {
    for (graph::OperatorId id : original_) {
      if (position_[static_cast<size_t>(id)] < 0) continue;
      if (graph::definition_of(graph_.op(id)).*is_meant) rule(id);
    }
  }

  // Whether `tensor` exists for `reader` alone.
  bool only_for(graph::TensorId tensor, graph::OperatorId reader) const {
    const auto& readers = readers_[static_cast<size_t>(tensor)];
    return readers.size() == 1 && readers[0] == reader && !is_result_[static_cast<size_t>(tensor)];
  }

  graph::OperatorId norm_behind(graph::TensorId tensor, graph::OperatorId reader) const {
    const graph::OperatorId id = graph_.tensor(tensor).producer;
    if (id == graph::kNone || !only_for(tensor, reader)) return graph::kNone;
    const graph::Operator& op = graph_.op(id);
    const bool fits = graph::definition_of(op).can_add_residual && op.outputs[0] == tensor &&
                      !op.attributes.flag("relu") && !op.attributes.flag("residual") &&
                      !op.attributes.has("bend") &&
                      readers_[static_cast<size_t>(op.outputs[1])].empty() &&
                      readers_[static_cast<size_t>(op.outputs[2])].empty();
    return fits ? id : graph::kNone;
  }

  void sum_into_norm(graph::OperatorId add) {
    const graph::Operator& op = graph_.op(add);
    const graph::TensorId a = op.inputs[0];
    const graph::TensorId b = op.inputs[1];
    if (a == b || graph_.tensor(a).type != graph_.tensor(b).type) return;
    graph::OperatorId host = norm_behind(a, add);
    graph::TensorId residual = b;
    const graph::OperatorId other = norm_behind(b, add);
    const bool second_is_longer = depth_[static_cast<size_t>(b)] > depth_[static_cast<size_t>(a)];
    if (other != graph::kNone && (host == graph::kNone || second_is_longer)) {
      host = other;
      residual = a;
    }
    if (host == graph::kNone) return;
    const bool relu = op.attributes.flag("relu");
    graph::Operator& norm = graph_.op(host);
    norm.inputs.push_back(residual);
    norm.attributes.set("residual", true);
    if (relu) norm.attributes.set("relu", true);
    take_over(host, add);
  }

  void relu_into_producer(graph::OperatorId relu) {
    const graph::TensorId x = graph_.op(relu).inputs[0];
    const graph::OperatorId producer = graph_.tensor(x).producer;
    if (producer == graph::kNone || !only_for(x, relu)) return;
    graph::Operator& host = graph_.op(producer);
    if (!graph::definition_of(host).can_end_in_relu) return;
    if (host.outputs[0] != x || any_read_besides_first(host)) return;
    host.attributes.set("relu", true);
    take_over(producer, relu);
  }

  void bend_into_norm(graph::OperatorId bend) {
    const graph::Operator& op = graph_.op(bend);
    const graph::OperatorId host = norm_behind(op.inputs[0], bend);
    if (host == graph::kNone || !graph::definition_of(graph_.op(host)).can_bend) return;
    graph::Operator& norm = graph_.op(host);
    norm.inputs.insert(norm.inputs.end(), op.inputs.begin() + 1, op.inputs.end());
    norm.attributes.set("bend", op.type);
    take_over(host, bend);
  }

  bool any_read_besides_first(const graph::Operator& op) const {
    return std::any_of(op.outputs.begin() + 1, op.outputs.end(), [this](graph::TensorId output) {
      return !readers_[static_cast<size_t>(output)].empty();
    });
  }

  void relu_into_reader(graph::OperatorId reader) {
    graph::Operator& op = graph_.op(reader);
    const graph::TensorId x = op.inputs[0];
    const graph::OperatorId producer = graph_.tensor(x).producer;
    if (producer == graph::kNone || !only_for(x, reader)) return;
    graph::Operator& host = graph_.op(producer);
    const Definition& made_by = graph::definition_of(host);
    if (made_by.is_relu) {
      op.inputs[0] = host.inputs[0];
      std::replace(readers_[static_cast<size_t>(host.inputs[0])].begin(),
                   readers_[static_cast<size_t>(host.inputs[0])].end(), producer, reader);
      remove(producer);
      graph_.tensor(x).producer = graph::kNone;
    } else if (host.attributes.flag("relu") && host.outputs[0] == x && made_by.can_end_in_relu) {
      host.attributes.set("relu", false);
    } else {
      return;
    }
    op.attributes.set("relu", true);
  }

  // `host` takes the place and the first output of `later`, which disappears.
  void take_over(graph::OperatorId host, graph::OperatorId later) {
    graph::Operator& kept = graph_.op(host);
    const graph::Operator& gone = graph_.op(later);
    graph_.tensor(kept.outputs[0]).producer = graph::kNone;
    kept.outputs[0] = gone.outputs[0];
    graph_.tensor(kept.outputs[0]).producer = host;
    for (graph::TensorId input : gone.inputs) {
      auto& readers = readers_[static_cast<size_t>(input)];
      std::replace(readers.begin(), readers.end(), later, host);
    }
    const int place = position_[static_cast<size_t>(later)];
    remove(later);
    order_[static_cast<size_t>(position_[static_cast<size_t>(host)])] = graph::kNone;
    order_[static_cast<size_t>(place)] = host;
    position_[static_cast<size_t>(host)] = place;
  }

  void remove(graph::OperatorId id) {
    order_[static_cast<size_t>(position_[static_cast<size_t>(id)])] = graph::kNone;
    position_[static_cast<size_t>(id)] = -1;
  }

  graph::Graph& graph_;
  const std::vector<graph::OperatorId> original_;
  std::vector<graph::OperatorId> order_;  // kNone where an operator has gone
  std::vector<int> position_;             // in order_, by operator; -1 if not in it
  std::vector<int> depth_;                // longest chain of operators behind a tensor
  std::vector<std::vector<graph::OperatorId>> readers_;
  std::vector<bool> is_result_;
};

}  // namespace

void fuse(graph::Graph& graph) { Fuser(graph).run(); }

}  // namespace millrace::passes
