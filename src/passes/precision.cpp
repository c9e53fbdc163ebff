#include "passes/precision.h"

#include <algorithm>
#include <map>

#include "graph/operator_definition.h"
#include "passes/kept_layers.h"
#include "passes/rewrite.h"

namespace millrace::passes {
namespace {

class Lowering {
 public:
  Lowering(graph::Graph& graph, graph::DataType type, const std::vector<std::string>& keep)
      : graph_(graph),
        type_(type),
        keep_(keep),
        names_(graph),
        readers_(graph.consumers()),
        is_result_(result_flags(graph)) {}

  PrecisionReport run() {
    for (graph::OperatorId id : std::vector<graph::OperatorId>(graph_.order())) {
      lower(id);
      order_.push_back(id);
      for (graph::TensorId output : std::vector<graph::TensorId>(graph_.op(id).outputs))
        keep_result(output);
    }
    graph_.set_order(std::move(order_));
    return report_;
  }

 private:
  using Halves = graph::OperatorDefinition::Halves;

  bool is_kept(const graph::Operator& op) const { return keep_.contains(op.name); }

  bool computes(const graph::Operator& op) const {
    return graph::definition_of(op).halves == Halves::computes && !is_kept(op);
  }
  bool follows(const graph::Operator& op) const {
    const Halves halves = graph::definition_of(op).halves;
    const bool images = graph_.tensor(op.inputs.at(0)).type.shape.size() >= 4;
    return !is_kept(op) &&
           (halves == Halves::follows || (halves == Halves::follows_images && images));
  }

  bool is_low(graph::TensorId id) const { return graph_.tensor(id).type.dtype == type_; }

  // One in 16 bits is that of an operator that reads and updates it as it is: the centres of a
  // head.
  bool is_parameter(graph::TensorId id) const {
    return graph_.tensor(id).role == graph::Role::parameter;
  }

  // The inputs that are images or rows, not parameters or statistics.
  static std::vector<size_t> data_inputs(const graph::Operator& op) {
    std::vector<size_t> inputs = {0};
    if (graph::definition_of(op).joins_inputs) {
      for (size_t i = 1; i < op.inputs.size(); ++i) inputs.push_back(i);
    }
    if (op.attributes.flag("residual")) inputs.push_back(op.inputs.size() - 1);
    return inputs;
  }

  void lower(graph::OperatorId id) {
    const std::vector<size_t> data = data_inputs(graph_.op(id));
    const bool fed_low = std::any_of(data.begin(), data.end(), [&](size_t i) {
      return i < graph_.op(id).inputs.size() && is_low(graph_.op(id).inputs[i]);
    });
    const bool low = computes(graph_.op(id)) || (fed_low && follows(graph_.op(id)));
    if (!low) {
      for (size_t i = 0; i < graph_.op(id).inputs.size(); ++i) {
        if (is_low(graph_.op(id).inputs[i]) && !is_parameter(graph_.op(id).inputs[i])) {
          use(id, i, graph::DataType::f32);
        }
      }
      return;
    }
    for (size_t i : data) use(id, i, type_);
    if (graph::definition_of(graph_.op(id)).can_widen &&
        !any_low_reader(graph_.op(id).outputs[0])) {
      graph_.op(id).attributes.set("to", static_cast<int64_t>(graph::DataType::f32));
    }
    infer_again(id);
    ++report_.operators;
  }

  bool any_low_reader(graph::TensorId tensor) const {
    const auto& readers = readers_[static_cast<size_t>(tensor)];
    return std::any_of(readers.begin(), readers.end(), [&](graph::OperatorId reader) {
      return computes(graph_.op(reader)) || follows(graph_.op(reader));
    });
  }

  void infer_again(graph::OperatorId id) {
    const graph::Operator& op = graph_.op(id);
    graph::Inference inference = {op, {}};
    for (graph::TensorId input : op.inputs) inference.inputs.push_back(graph_.tensor(input).type);
    const std::vector<graph::TensorType> types = graph::definition_of(op.type).infer(inference);
    for (size_t i = 0; i < types.size(); ++i) graph_.tensor(op.outputs[i]).type = types[i];
  }

  void use(graph::OperatorId id, size_t input, graph::DataType wanted) {
    const graph::TensorId tensor = graph_.op(id).inputs[input];
    if (graph_.tensor(tensor).type.dtype == wanted) return;
    const graph::TensorId copy = cast(tensor, wanted);
    graph_.op(id).inputs[input] = copy;
  }

  graph::TensorId cast(graph::TensorId tensor, graph::DataType wanted) {
    const auto known = twins_.find(tensor);
    if (known != twins_.end()) return known->second;
    const std::string name = graph_.tensor(tensor).name + "/" + std::string(graph::name_of(wanted));
    const graph::OperatorId id = graph_.add_operator("cast", names_.take(name), {tensor},
                                                     {{"to", static_cast<int64_t>(wanted)}});
    const graph::TensorId copy = graph_.op(id).outputs[0];
    graph_.tensor(copy).slice = graph_.tensor(tensor).slice;
    twins_[tensor] = copy;
    twins_[copy] = tensor;
    order_.push_back(id);
    ++report_.casts;
    return copy;
  }

  // Whoever fetches a result by its name gets float32.
  void keep_result(graph::TensorId tensor) {
    if (!is_result_[static_cast<size_t>(tensor)] || !is_low(tensor)) return;
    const graph::TensorId wide = cast(tensor, graph::DataType::f32);
    std::swap(graph_.tensor(tensor).name, graph_.tensor(wide).name);
    std::vector<graph::TensorId> results = graph_.results();
    std::replace(results.begin(), results.end(), tensor, wide);
    graph_.set_results(std::move(results));
  }

  graph::Graph& graph_;
  const graph::DataType type_;
  const KeptLayers keep_;
  UniqueNames names_;
  const std::vector<std::vector<graph::OperatorId>> readers_;
  const std::vector<bool> is_result_;
  std::map<graph::TensorId, graph::TensorId> twins_;  // the same values in the other type
  std::vector<graph::OperatorId> order_;
  PrecisionReport report_;
};

}  // namespace

PrecisionReport lower_precision(graph::Graph& graph, graph::DataType type,
                                const std::vector<std::string>& keep) {
  return Lowering(graph, type, keep).run();
}

}  // namespace millrace::passes
