#include "planner/cost/network_work.h"

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>

#include "graph/operator_definition.h"
#include "passes/autodiff.h"

namespace millrace {
namespace {

// The training step of a model for one batch size, without updates.
Graph training_graph(std::string_view model, ModelOptions options, int64_t batch) {
  options.batch = batch;
  Graph graph = build_model(model, options);
  differentiate(graph, graph.find_tensor("loss"));
  return graph;
}

double elements(const Graph& graph, TensorId id) {
  return static_cast<double>(graph.tensor(id).type.elements());
}

double tensor_traffic(const Graph& graph, const Operator& op) {
  if (definition_of(op.type).is_view) return 0;
  double sum = 0;
  for (const TensorId id : op.inputs) sum += elements(graph, id);
  for (const TensorId id : op.outputs) sum += elements(graph, id);
  return sum;
}

double arithmetic(const Graph& graph, const Operator& op) {
  const OperatorDefinition& definition = definition_of(op.type);
  if (definition.is_view) return 0;
  if (definition.arithmetic == nullptr) {
    return op.outputs.empty() ? 0 : elements(graph, op.outputs.front());
  }
  Inference inference{op, {}};
  for (const TensorId id : op.inputs) inference.inputs.push_back(graph.tensor(id).type);
  return definition.arithmetic(inference);
}

WorkKind kind_of_convolution(const Graph& graph, const Operator& op) {
  int64_t kernel = 0;
  if (op.type == "convolution_backward_weights") {
    kernel = op.attributes.integers("kernel").at(0);
  } else {
    kernel = graph.tensor(op.inputs.at(1)).type.shape.at(2);
  }
  if (op.attributes.integer("groups") > 1) return WorkKind::memory;
  if (kernel == 1) return WorkKind::pointwise;
  const bool dense = op.attributes.integers("stride").at(0) == 1;
  return kernel == 3 && dense ? WorkKind::convolution3 : WorkKind::convolution;
}

WorkKind kind_of(const Graph& graph, const Operator& op) {
  if (op.type.starts_with("convolution")) return kind_of_convolution(graph, op);
  if (op.type.starts_with("linear")) return WorkKind::linear;
  return WorkKind::memory;
}

// Batch norm needs more than one sample.
constexpr int64_t kFewer = 2, kMore = 4;

Linear line_through(double at_fewer, double at_more) {
  const double slope = (at_more - at_fewer) / static_cast<double>(kMore - kFewer);
  return {at_fewer - slope * static_cast<double>(kFewer), slope};
}

// The same graph for a few and for more samples, walked together.
class NetworkReader {
 public:
  NetworkReader(const Graph& fewer, const Graph& more)
      : fewer_(fewer),
        more_(more),
        consumers_(fewer.consumers()),
        trained_(trained_tensors(fewer)) {}

  std::vector<LayerWork> layers() {
    for (const OperatorId id : fewer_.order()) {
      if (fewer_.op(id).phase == Phase::forward && !is_metric(fewer_.op(id))) add_layer(id);
    }
    for (const OperatorId id : fewer_.order()) {
      if (fewer_.op(id).phase == Phase::backward) add_backward(id);
    }
    find_cuts();
    return std::move(layers_);
  }

  Linear tensor(TensorId id) const {
    return line_through(elements(fewer_, id), elements(more_, id));
  }

 private:
  static bool is_metric(const Operator& op) { return op.type == "top_k"; }

  bool is_activation(TensorId id) const { return fewer_.tensor(id).role == Role::activation; }

  OperatorWork work(OperatorId id) const {
    return {
        kind_of(fewer_, fewer_.op(id)),
        line_through(arithmetic(fewer_, fewer_.op(id)), arithmetic(more_, more_.op(id))),
        line_through(tensor_traffic(fewer_, fewer_.op(id)), tensor_traffic(more_, more_.op(id)))};
  }

  bool read_by_backward(TensorId id) const {
    return std::any_of(consumers_[id].begin(), consumers_[id].end(), [&](OperatorId consumer) {
      const Operator& op = fewer_.op(consumer);
      if (op.phase == Phase::backward) return true;
      return definition_of(op.type).is_view && read_by_backward(op.outputs.front());
    });
  }

  void grow(Linear& largest, TensorId id) const {
    const Linear size = tensor(id);
    if (size.at(1) > largest.at(1)) largest = size;
  }

  void add_layer(OperatorId id) {
    const Operator& op = fewer_.op(id);
    LayerWork layer;
    layer.name = op.name;
    layer.type = op.type;
    layer.forward.push_back(work(id));
    int trained = 0;
    for (const TensorId input : op.inputs) {
      const Tensor& source = fewer_.tensor(input);
      trained += trained_[input] ? 1 : 0;
      layer.backbone =
          layer.backbone || (source.producer != kNone && joins_.contains(source.producer));
      if (source.role == Role::parameter) layer.parameters += elements(fewer_, input);
      if (source.role == Role::activation) grow(layer.largest, input);
    }
    if (trained >= 2) {
      joins_.insert(id);
      layer.backbone = true;
    }
    for (const TensorId output : op.outputs) {
      grow(layer.largest, output);
      if (!definition_of(op.type).is_view && read_by_backward(output)) {
        layer.saved += tensor(output);
      }
    }
    index_[op.name] = static_cast<int>(layers_.size());
    forward_.push_back(id);
    layers_.push_back(std::move(layer));
  }

  void add_backward(OperatorId id) {
    std::string owner = fewer_.op(id).name.substr(0, fewer_.op(id).name.rfind('/'));
    auto found = index_.find(owner);
    if (found == index_.end()) {
      owner = owner.substr(0, owner.rfind(':'));
      found = index_.find(owner);
    }
    LayerWork& layer = found == index_.end() ? layers_.back() : layers_[found->second];
    layer.backward.push_back(work(id));
  }

  // A tensor crosses every cut between its producer and its last forward reader. A view is the
  // tensor it shows.
  void find_cuts() {
    for (size_t i = 0; i < forward_.size(); ++i) {
      for (const TensorId output : fewer_.op(forward_[i]).outputs) {
        if (!is_activation(output)) continue;
        size_t last = i;
        for (const OperatorId consumer : consumers_[output]) {
          const auto found = index_.find(fewer_.op(consumer).name);
          if (found != index_.end()) last = std::max(last, static_cast<size_t>(found->second));
        }
        for (size_t cut = i; cut < last; ++cut) layers_[cut].cut += tensor(output);
      }
    }
  }

  const Graph& fewer_;
  const Graph& more_;
  const std::vector<std::vector<OperatorId>> consumers_;
  const std::vector<bool> trained_;
  std::set<OperatorId> joins_;  // operators that read two or more trained tensors
  std::vector<LayerWork> layers_;
  std::vector<OperatorId> forward_;  // of each layer
  std::map<std::string, int> index_;
};

}  // namespace

std::string_view name_of(WorkKind kind) {
  switch (kind) {
    case WorkKind::convolution:
      return "convolution";
    case WorkKind::convolution3:
      return "convolution3";
    case WorkKind::pointwise:
      return "pointwise";
    case WorkKind::linear:
      return "linear";
    case WorkKind::memory:
      return "memory";
  }
  throw std::logic_error("unknown kind of work");
}

NetworkWork work_of(std::string_view model, ModelOptions options) {
  const Graph fewer = training_graph(model, options, kFewer);
  const Graph more = training_graph(model, options, kMore);
  NetworkReader reader(fewer, more);
  NetworkWork network;
  network.model = model;
  network.layers = reader.layers();
  network.input = reader.tensor(fewer.find_tensor("images"));
  return network;
}

double parameters_of(const NetworkWork& network, int begin, int end) {
  double sum = 0;
  for (int i = begin; i < end; ++i) sum += network.layers.at(i).parameters;
  return sum;
}

Linear saved_by(const NetworkWork& network, int begin, int end) {
  Linear sum;
  for (int i = begin; i < end; ++i) sum += network.layers.at(i).saved;
  return sum;
}

}  // namespace millrace
