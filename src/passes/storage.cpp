#include "passes/storage.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "graph/operator_definition.h"
#include "passes/kept_layers.h"
#include "passes/liveness.h"
#include "passes/rewrite.h"

namespace millrace::passes {
namespace {

// Smaller tensors are not worth the two operators.
constexpr int64_t kLeastElements = 4096;

// A widened copy, or what a clone made, serves readers that are at most so many operators apart.
constexpr size_t kNear = 2;

class SixteenBitStorage {
 public:
  SixteenBitStorage(graph::Graph& graph, const std::vector<bool>& stored, graph::DataType type)
      : graph_(graph), stored_(stored), type_(type), names_(graph) {}

  StorageReport run() {
    const std::vector<graph::OperatorId> order = graph_.order();
    for (graph::OperatorId id : order) {
      const graph::Phase phase = graph_.op(id).phase;
      if (phase == graph::Phase::backward) read_narrow(id);
      order_.push_back(id);
      for (graph::TensorId output : std::vector<graph::TensorId>(graph_.op(id).outputs)) {
        if (stored_[static_cast<size_t>(output)]) narrow(output, phase);
      }
    }
    graph_.set_order(std::move(order_));
    return report_;
  }

 private:
  // What is kept of a tensor, and its newest copy in float32.
  struct Kept {
    graph::TensorId narrow = graph::kNone;
    graph::TensorId wide = graph::kNone;
    size_t last_read = 0;
  };

  graph::OperatorId add_cast(const std::string& name, graph::TensorId from, graph::DataType to,
                             graph::Phase phase) {
    return graph_.add_operator("cast", names_.take(name), {from},
                               {{"to", static_cast<int64_t>(to)}}, phase);
  }

  void narrow(graph::TensorId tensor, graph::Phase phase) {
    const graph::OperatorId id =
        add_cast(graph_.tensor(tensor).name + "/narrow", tensor, type_, phase);
    order_.push_back(id);
    kept_[tensor] = {graph_.op(id).outputs[0],
                     phase == graph::Phase::backward ? tensor : graph::kNone, order_.size()};
    ++report_.narrowed;
  }

  void read_narrow(graph::OperatorId id) {
    const std::vector<int>& direct = graph::definition_of(graph_.op(id).type).stored_inputs;
    for (size_t i = 0; i < graph_.op(id).inputs.size(); ++i) {
      const auto found = kept_.find(graph_.op(id).inputs[i]);
      if (found == kept_.end()) continue;
      const bool takes =
          std::find(direct.begin(), direct.end(), static_cast<int>(i)) != direct.end();
      if (takes) graph_.op(id).attributes.set("wide", true);
      graph_.op(id).inputs[i] = takes && !is_at_hand(found->second)
                                    ? found->second.narrow
                                    : widened(found->first, found->second);
    }
  }

  bool is_at_hand(const Kept& kept) const {
    return kept.wide != graph::kNone && order_.size() <= kept.last_read + kNear;
  }

  graph::TensorId widened(graph::TensorId tensor, Kept& kept) {
    if (!is_at_hand(kept)) {
      const graph::OperatorId id = add_cast(graph_.tensor(tensor).name + "/widen", kept.narrow,
                                            graph::DataType::f32, graph::Phase::backward);
      kept.wide = graph_.op(id).outputs[0];
      order_.push_back(id);
      ++report_.widened;
    }
    kept.last_read = order_.size();
    return kept.wide;
  }

  graph::Graph& graph_;
  const std::vector<bool>& stored_;
  const graph::DataType type_;
  UniqueNames names_;
  std::map<graph::TensorId, Kept> kept_;
  std::vector<graph::OperatorId> order_;
  StorageReport report_;
};

// For each tensor whether the backward pass reads what the forward pass made, or reads what it made
// itself more than kFarReader operators after the last time.
std::vector<bool> read_from_afar(const graph::Graph& graph) {
  std::vector<bool> far(static_cast<size_t>(graph.tensor_count()), false);
  std::vector<size_t> last_use(far.size(), 0);
  const std::vector<graph::OperatorId>& order = graph.order();
  for (size_t i = 0; i < order.size(); ++i) {
    const graph::Operator& op = graph.op(order[i]);
    for (graph::TensorId output : op.outputs) last_use[static_cast<size_t>(output)] = i;
    if (op.phase != graph::Phase::backward) continue;
    for (graph::TensorId input : op.inputs) {
      const auto t = static_cast<size_t>(input);
      const graph::OperatorId producer = graph.tensor(input).producer;
      if (producer == graph::kNone) continue;
      const bool made_forward = graph.op(producer).phase == graph::Phase::forward;
      far[t] = far[t] || made_forward || i > last_use[t] + kFarReader;
      last_use[t] = i;
    }
  }
  return far;
}

bool is_clone(const graph::Operator& op) {
  return op.phase == graph::Phase::backward && op.name.ends_with("/again");
}

}  // namespace

std::vector<bool> storable_tensors(const graph::Graph& graph, const PrecisionSettings& settings,
                                   bool results_fetched) {
  const KeptLayers kept(settings.keep);
  const std::vector<graph::TensorId> roots = storage_roots(graph);
  std::vector<bool> storable(roots.size(), false);
  for (graph::OperatorId id : graph.order()) {
    const graph::Operator& op = graph.op(id);
    if (op.phase != graph::Phase::forward && !is_clone(op)) continue;
    if (graph::definition_of(op.type).exact || kept.contains(op.name)) continue;
    for (graph::TensorId output : op.outputs) {
      const graph::Tensor& tensor = graph.tensor(output);
      const graph::Role owner = graph.tensor(roots[static_cast<size_t>(output)]).role;
      storable[static_cast<size_t>(output)] = tensor.type.dtype == graph::DataType::f32 &&
                                              tensor.type.elements() >= kLeastElements &&
                                              owner == graph::Role::activation;
    }
  }
  for (graph::OperatorId id : graph.order()) {
    const graph::Operator& op = graph.op(id);
    const bool wants_floats =
        op.phase == graph::Phase::update ||
        (op.phase == graph::Phase::backward && graph::definition_of(op.type).exact);
    if (!wants_floats) continue;
    for (graph::TensorId input : op.inputs) storable[static_cast<size_t>(input)] = false;
  }
  if (!results_fetched) {
    for (graph::TensorId result : graph.results()) storable[static_cast<size_t>(result)] = false;
  }
  return storable;
}

StorageReport store_in_16_bits(graph::Graph& graph, const PrecisionSettings& settings,
                               bool results_fetched) {
  std::vector<bool> stored = storable_tensors(graph, settings, results_fetched);
  const std::vector<bool> far = read_from_afar(graph);
  for (size_t i = 0; i < stored.size(); ++i) stored[i] = stored[i] && far[i];
  return SixteenBitStorage(graph, stored, settings.type).run();
}

}  // namespace millrace::passes
