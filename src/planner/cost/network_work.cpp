#include "planner/cost/network_work.h"

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>

#include "graph/operator_definition.h"
#include "parallel/localize.h"
#include "passes/autodiff.h"

namespace millrace::planner {
namespace {

// The training step of a model for one batch size, without updates.
graph::Graph training_graph(std::string_view model, models::ModelOptions options, int64_t batch) {
  options.batch = batch;
  graph::Graph graph = models::build_model(model, options);
  passes::differentiate(graph, graph.find_tensor("loss"));
  return graph;
}

// The same as the first of several devices runs it.
graph::Graph local_training_graph(std::string_view model, models::ModelOptions options,
                                  const parallel::ShardingPolicy& policy, int members,
                                  int64_t batch) {
  options.batch = batch;
  graph::Graph graph =
      parallel::localize(parallel::shard(models::build_model(model, options), policy, members), 0);
  passes::differentiate(graph, graph.find_tensor("loss"));
  return graph;
}

double elements(const graph::Graph& graph, graph::TensorId id) {
  return static_cast<double>(graph.tensor(id).type.elements());
}

double tensor_traffic(const graph::Graph& graph, const graph::Operator& op) {
  if (graph::definition_of(op.type).is_view) return 0;
  double sum = 0;
  for (const graph::TensorId id : op.inputs) sum += elements(graph, id);
  for (const graph::TensorId id : op.outputs) sum += elements(graph, id);
  return sum;
}

double arithmetic(const graph::Graph& graph, const graph::Operator& op) {
  const graph::OperatorDefinition& definition = graph::definition_of(op.type);
  if (definition.is_view) return 0;
  if (definition.arithmetic == nullptr) {
    return op.outputs.empty() ? 0 : elements(graph, op.outputs.front());
  }
  graph::Inference inference{op, {}};
  for (const graph::TensorId id : op.inputs) inference.inputs.push_back(graph.tensor(id).type);
  return definition.arithmetic(inference);
}

using graph::OperatorDefinition;

WorkKind kind_of_convolution(const graph::Graph& graph, const graph::Operator& op) {
  const bool makes_weights =
      graph::definition_of(op).gradient == OperatorDefinition::Gradient::of_weights;
  const graph::TensorId weights = makes_weights ? op.outputs.at(0) : op.inputs.at(1);
  const int64_t kernel = graph.tensor(weights).type.shape.at(2);
  if (op.attributes.integer("groups") > 1) return WorkKind::memory;
  if (kernel == 1) return WorkKind::pointwise;
  const bool dense = op.attributes.integers("stride").at(0) == 1;
  return kernel == 3 && dense ? WorkKind::convolution3 : WorkKind::convolution;
}

WorkKind kind_of(const graph::Graph& graph, const graph::Operator& op) {
  const graph::OperatorDefinition& definition = graph::definition_of(op);
  if (definition.weights == OperatorDefinition::Weights::sliding)
    return kind_of_convolution(graph, op);
  if (definition.weights == OperatorDefinition::Weights::dense) return WorkKind::linear;
  const bool exchanges = definition.exchange != graph::OperatorDefinition::Exchange::none;
  return exchanges ? WorkKind::exchange : WorkKind::memory;
}

simulate::Collective collective_of(const graph::Operator& op) {
  using Exchange = graph::OperatorDefinition::Exchange;
  const Exchange exchange = graph::definition_of(op.type).exchange;
  if (exchange == Exchange::gather) return simulate::Collective::all_gather;
  return exchange == Exchange::scatter ? simulate::Collective::reduce_scatter
                                       : simulate::Collective::all_reduce;
}

// Elements of the whole tensor that an exchange is about.
double exchanged(const graph::Graph& graph, const graph::Operator& op) {
  double most = 0;
  for (const graph::TensorId id : op.inputs) most = std::max(most, elements(graph, id));
  for (const graph::TensorId id : op.outputs) most = std::max(most, elements(graph, id));
  return most;
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
  NetworkReader(const graph::Graph& fewer, const graph::Graph& more)
      : fewer_(fewer),
        more_(more),
        consumers_(fewer.consumers()),
        trained_(passes::trained_tensors(fewer)) {}

  std::vector<LayerWork> layers() {
    for (const graph::OperatorId id : fewer_.order()) {
      const graph::Operator& op = fewer_.op(id);
      if (op.phase == graph::Phase::forward && !graph::definition_of(op).is_metric) add_layer(id);
    }
    for (const graph::OperatorId id : fewer_.order()) {
      if (fewer_.op(id).phase == graph::Phase::backward) add_backward(id);
    }
    find_cuts();
    return std::move(layers_);
  }

  double least_samples() const { return normalizes_samples_ ? 2 : 1; }

  Linear tensor(graph::TensorId id) const {
    return line_through(elements(fewer_, id), elements(more_, id));
  }

 private:
  bool is_activation(graph::TensorId id) const {
    return fewer_.tensor(id).role == graph::Role::activation;
  }

  OperatorWork work(graph::OperatorId id) const {
    const WorkKind kind = kind_of(fewer_, fewer_.op(id));
    if (kind == WorkKind::exchange) {
      return {kind,
              {},
              line_through(exchanged(fewer_, fewer_.op(id)), exchanged(more_, more_.op(id))),
              false,
              collective_of(fewer_.op(id))};
    }
    return {
        kind, line_through(arithmetic(fewer_, fewer_.op(id)), arithmetic(more_, more_.op(id))),
        line_through(tensor_traffic(fewer_, fewer_.op(id)), tensor_traffic(more_, more_.op(id))),
        graph::definition_of(fewer_.op(id)).gradient == OperatorDefinition::Gradient::of_weights};
  }

  bool read_by_backward(graph::TensorId id) const {
    return std::any_of(
        consumers_[id].begin(), consumers_[id].end(), [&](graph::OperatorId consumer) {
          const graph::Operator& op = fewer_.op(consumer);
          if (op.phase == graph::Phase::backward) return true;
          return graph::definition_of(op.type).is_view && read_by_backward(op.outputs.front());
        });
  }

  void grow(Linear& largest, graph::TensorId id) const {
    const Linear size = tensor(id);
    if (size.at(1) > largest.at(1)) largest = size;
  }

  void add_layer(graph::OperatorId id) {
    const graph::Operator& op = fewer_.op(id);
    LayerWork layer;
    layer.name = op.name;
    layer.type = op.type;
    layer.forward.push_back(work(id));
    int trained = 0;
    for (const graph::TensorId input : op.inputs) {
      const graph::Tensor& source = fewer_.tensor(input);
      trained += trained_[input] ? 1 : 0;
      layer.backbone =
          layer.backbone || (source.producer != graph::kNone && joins_.contains(source.producer));
      if (source.role == graph::Role::parameter) {
        layer.parameters += elements(fewer_, input);
        if (source.slice.axis != graph::kNone) layer.split_parameters += elements(fewer_, input);
      }
      if (source.role == graph::Role::activation) grow(layer.largest, input);
    }
    if (trained >= 2) {
      joins_.insert(id);
      layer.backbone = true;
    }
    for (const graph::TensorId output : op.outputs) {
      grow(layer.largest, output);
      if (!graph::definition_of(op.type).is_view && read_by_backward(output)) {
        layer.saved += tensor(output);
      }
    }
    if (graph::definition_of(op).has_running_statistics) {
      normalizes_samples_ = normalizes_samples_ || tensor(op.inputs.front()).per_sample <=
                                                       elements(fewer_, op.inputs.at(1));
    }
    index_[op.name] = static_cast<int>(layers_.size());
    forward_.push_back(id);
    layers_.push_back(std::move(layer));
  }

  void add_backward(graph::OperatorId id) {
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
      for (const graph::TensorId output : fewer_.op(forward_[i]).outputs) {
        if (!is_activation(output)) continue;
        size_t last = i;
        for (const graph::OperatorId consumer : consumers_[output]) {
          const auto found = index_.find(fewer_.op(consumer).name);
          if (found != index_.end()) last = std::max(last, static_cast<size_t>(found->second));
        }
        for (size_t cut = i; cut < last; ++cut) layers_[cut].cut += tensor(output);
      }
    }
  }

  const graph::Graph& fewer_;
  const graph::Graph& more_;
  const std::vector<std::vector<graph::OperatorId>> consumers_;
  const std::vector<bool> trained_;
  std::set<graph::OperatorId> joins_;  // operators that read two or more trained tensors
  std::vector<LayerWork> layers_;
  std::vector<graph::OperatorId> forward_;  // of each layer
  bool normalizes_samples_ = false;         // some batch norm sees one value of a sample
  std::map<std::string, int> index_;
};

NetworkWork read_network(std::string_view model, const graph::Graph& fewer,
                         const graph::Graph& more) {
  NetworkReader reader(fewer, more);
  NetworkWork network;
  network.model = model;
  network.layers = reader.layers();
  network.least_samples = reader.least_samples();
  network.input = reader.tensor(fewer.find_tensor("images"));
  return network;
}

}  // namespace

NetworkWork work_of(std::string_view model, models::ModelOptions options) {
  return read_network(model, training_graph(model, options, kFewer),
                      training_graph(model, options, kMore));
}

NetworkWork work_of(std::string_view model, models::ModelOptions options,
                    const SharedWork& shared) {
  const int members = shared.members;
  parallel::ShardingPolicy policy;
  policy.parallelism = shared.parallelism;
  options.batch = shared.batch;
  policy.layers = parallel::layer_choices(
      parallel::shard(models::build_model(model, options), policy, members));
  const auto graph = [&](int64_t samples) {
    return local_training_graph(model, options, policy, members, samples * members);
  };
  return read_network(model, graph(kFewer), graph(kMore));
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

}  // namespace millrace::planner
