#include "passes/storage.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "graph/operator_definition.h"
#include "passes/kept_layers.h"
#include "passes/liveness.h"
#include "passes/rewrite.h"

namespace millrace {
namespace {

// Smaller tensors are not worth the two operators.
constexpr int64_t kLeastElements = 4096;

// A widened copy serves readers that are at most so many operators apart.
constexpr size_t kNear = 4;

class SixteenBitStorage {
 public:
  SixteenBitStorage(Graph& graph, const std::vector<bool>& stored, DataType type)
      : graph_(graph), stored_(stored), type_(type), names_(graph) {}

  StorageReport run() {
    const std::vector<OperatorId> order = graph_.order();
    for (OperatorId id : order) {
      if (graph_.op(id).phase == Phase::backward) read_narrow(id);
      order_.push_back(id);
      if (graph_.op(id).phase != Phase::forward) continue;
      for (TensorId output : std::vector<TensorId>(graph_.op(id).outputs)) {
        if (stored_[static_cast<size_t>(output)]) narrow(output);
      }
    }
    graph_.set_order(std::move(order_));
    return report_;
  }

 private:
  // What is kept of a tensor, and its newest copy in float32.
  struct Kept {
    TensorId narrow = kNone;
    TensorId wide = kNone;
    size_t last_read = 0;
  };

  void narrow(TensorId tensor) {
    const OperatorId id =
        graph_.add_operator("narrow", names_.take(graph_.tensor(tensor).name + "/narrow"), {tensor},
                            {{"dtype", std::string(name_of(type_))}}, Phase::forward);
    kept_[tensor].narrow = graph_.op(id).outputs[0];
    order_.push_back(id);
    ++report_.narrowed;
  }

  void read_narrow(OperatorId id) {
    const std::vector<int>& direct = definition_of(graph_.op(id).type).stored_inputs;
    for (size_t i = 0; i < graph_.op(id).inputs.size(); ++i) {
      const auto found = kept_.find(graph_.op(id).inputs[i]);
      if (found == kept_.end()) continue;
      const bool takes =
          std::find(direct.begin(), direct.end(), static_cast<int>(i)) != direct.end();
      if (takes) graph_.op(id).attributes.set("wide", true);
      graph_.op(id).inputs[i] = takes ? found->second.narrow : widened(found->first, found->second);
    }
  }

  TensorId widened(TensorId tensor, Kept& kept) {
    if (kept.wide == kNone || order_.size() > kept.last_read + kNear) {
      const OperatorId id =
          graph_.add_operator("widen", names_.take(graph_.tensor(tensor).name + "/widen"),
                              {kept.narrow}, {}, Phase::backward);
      kept.wide = graph_.op(id).outputs[0];
      order_.push_back(id);
      ++report_.widened;
    }
    kept.last_read = order_.size();
    return kept.wide;
  }

  Graph& graph_;
  const std::vector<bool>& stored_;
  const DataType type_;
  UniqueNames names_;
  std::map<TensorId, Kept> kept_;
  std::vector<OperatorId> order_;
  StorageReport report_;
};

}  // namespace

std::vector<bool> storable_tensors(const Graph& graph, const PrecisionSettings& settings,
                                   bool results_fetched) {
  const KeptLayers kept(settings.keep);
  const std::vector<TensorId> roots = storage_roots(graph);
  std::vector<bool> storable(roots.size(), false);
  for (OperatorId id : graph.order()) {
    const Operator& op = graph.op(id);
    if (op.phase != Phase::forward || definition_of(op.type).exact || kept.contains(op.name)) {
      continue;
    }
    for (TensorId output : op.outputs) {
      const Tensor& tensor = graph.tensor(output);
      const Role owner = graph.tensor(roots[static_cast<size_t>(output)]).role;
      storable[static_cast<size_t>(output)] = tensor.type.dtype == DataType::f32 &&
                                              tensor.type.elements() >= kLeastElements &&
                                              owner == Role::activation;
    }
  }
  for (OperatorId id : graph.order()) {
    const Operator& op = graph.op(id);
    const bool wants_floats =
        op.phase == Phase::update || (op.phase == Phase::backward && definition_of(op.type).exact);
    if (!wants_floats) continue;
    for (TensorId input : op.inputs) storable[static_cast<size_t>(input)] = false;
  }
  if (!results_fetched) {
    for (TensorId result : graph.results()) storable[static_cast<size_t>(result)] = false;
  }
  return storable;
}

StorageReport store_in_16_bits(Graph& graph, const PrecisionSettings& settings,
                               bool results_fetched) {
  std::vector<bool> stored = storable_tensors(graph, settings, results_fetched);
  std::vector<bool> read(stored.size(), false);
  for (OperatorId id : graph.order()) {
    if (graph.op(id).phase != Phase::backward) continue;
    for (TensorId input : graph.op(id).inputs) read[static_cast<size_t>(input)] = true;
  }
  for (size_t i = 0; i < stored.size(); ++i) stored[i] = stored[i] && read[i];
  return SixteenBitStorage(graph, stored, settings.type).run();
}

}  // namespace millrace
