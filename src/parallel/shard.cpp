#include "parallel/shard.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <stdexcept>

#include "base/error.h"
#include "base/parts.h"
#include "parallel/boxing.h"
#include "parallel/local_operator.h"

namespace millrace::parallel {
namespace {

constexpr double kReplicated = 0.01;  // bytes of cost per byte made by every device alike

double bytes_of(const graph::TensorType& type) {
  return static_cast<double>(type.elements() * graph::size_of(type.dtype));
}

graph::OperatorDefinition::Weights weights_of(const graph::Operator& op) {
  return graph::definition_of(op).weights;
}

bool has_weights(const graph::Operator& op) {
  return weights_of(op) != graph::OperatorDefinition::Weights::none;
}

std::optional<LayerSharding> layer_sharding(const graph::ShardingSignature& way) {
  const graph::Sharding& weights = way.inputs.at(1);
  if (weights == graph::split(0)) return LayerSharding::split_output;
  if (weights == graph::split(1)) return LayerSharding::split_input;
  if (way.inputs[0] == graph::split(0)) return LayerSharding::data;
  return std::nullopt;
}

std::vector<bool> trained_by_tensor(const graph::Graph& graph) {
  std::vector<bool> trained;
  for (graph::TensorId id = 0; id < graph.tensor_count(); ++id) {
    trained.push_back(graph.tensor(id).role == graph::Role::parameter);
  }
  for (graph::OperatorId id : graph.order()) {
    bool any = false;
    for (graph::TensorId input : graph.op(id).inputs) any |= trained[static_cast<size_t>(input)];
    for (graph::TensorId output : graph.op(id).outputs) trained[static_cast<size_t>(output)] = any;
  }
  return trained;
}

class Chooser {
 public:
  Chooser(const graph::Graph& forward, const ShardingPolicy& policy, int members)
      : policy_(policy),
        members_(members),
        result_({forward, members, policy.synchronise_batch_norm, {}, {}, {}}),
        graph_(result_.graph),
        readers_(forward.consumers()) {
    result_.signatures.resize(static_cast<size_t>(graph_.operator_count()));
    result_.tensors.resize(static_cast<size_t>(graph_.tensor_count()));
    result_.trained = trained_by_tensor(graph_);
    decided_.resize(static_cast<size_t>(graph_.tensor_count()), false);
    ways_.resize(static_cast<size_t>(graph_.operator_count()));
  }

  ShardedGraph run() {
    check_policy();
    for (graph::OperatorId id : graph_.order()) choose(id);
    return std::move(result_);
  }

 private:
  const graph::Sharding& have(graph::TensorId id) const {
    return result_.tensors[static_cast<size_t>(id)];
  }
  bool decided(graph::TensorId id) const { return decided_[static_cast<size_t>(id)]; }
  const graph::TensorType& type(graph::TensorId id) const { return graph_.tensor(id).type; }

  graph::Inference inference_of(const graph::Operator& op) const {
    graph::Inference inference = {op, {}};
    for (graph::TensorId input : op.inputs) inference.inputs.push_back(type(input));
    return inference;
  }

  void check_policy() const {
    require_layers(graph_, policy_);
    if (policy_.parallelism == Parallelism::model) return;
    for (graph::TensorId id = 0; id < graph_.tensor_count(); ++id) {
      if (graph_.tensor(id).role != graph::Role::input || type(id).shape.empty()) continue;
      if (type(id).shape[0] < members_) {
        fail_input("A batch of {} samples cannot be divided over {} devices; use at least {}.",
                   type(id).shape[0], members_, members_);
      }
    }
  }

  // Every listed way that leaves rows for each member and makes parts of the right shapes, and
  // the one on whole tensors, last.
  const std::vector<graph::ShardingSignature>& ways(graph::OperatorId id) {
    auto& found = ways_[static_cast<size_t>(id)];
    if (!found.empty()) return found;
    const graph::Operator& op = graph_.op(id);
    const graph::Inference inference = inference_of(op);
    const auto shardings = graph::definition_of(op.type).shardings;
    if (shardings != nullptr && members_ > 1) {
      for (graph::ShardingSignature& way : shardings(inference)) {
        if (fits(inference, way)) found.push_back(std::move(way));
      }
    }
    found.push_back({std::vector<graph::Sharding>(op.inputs.size(), graph::broadcast()),
                     std::vector<graph::Sharding>(op.outputs.size(), graph::broadcast())});
    return found;
  }

  bool leaves_rows(const graph::Shape& shape, const graph::Sharding& sharding) const {
    return sharding.kind != graph::Sharding::Kind::split ||
           shape.at(static_cast<size_t>(sharding.axis)) >= members_;
  }

  bool fits(const graph::Inference& whole, const graph::ShardingSignature& way) {
    for (size_t i = 0; i < whole.inputs.size(); ++i) {
      if (!leaves_rows(whole.shape(i), way.inputs.at(i))) return false;
    }
    for (size_t i = 0; i < whole.op.outputs.size(); ++i) {
      if (!leaves_rows(type(whole.op.outputs[i]).shape, way.outputs.at(i))) return false;
    }
    if (is_expanded(whole.op, way, policy_.synchronise_batch_norm)) return true;
    for (int member = 0; member < members_; ++member) {
      if (!fits(whole, way, member)) return false;
    }
    return true;
  }

  bool fits(const graph::Inference& whole, const graph::ShardingSignature& way, int member) {
    graph::Operator op = whole.op;
    op.attributes = local_attributes(whole, way, member, members_);
    graph::Inference local = {op, whole.inputs};
    for (size_t i = 0; i < local.inputs.size(); ++i) {
      local.inputs[i].shape = local_shape(whole.shape(i), way.inputs[i], member, members_);
    }
    try {
      const auto outputs = graph::definition_of(op.type).infer(local);
      for (size_t i = 0; i < outputs.size(); ++i) {
        const graph::Shape& shape = type(op.outputs[i]).shape;
        if (outputs[i].shape != local_shape(shape, way.outputs.at(i), member, members_)) {
          return false;
        }
      }
    } catch (const InputError& error) {
      refusal_ = error.marked();
      return false;
    }
    return true;
  }

  bool starts_by_samples() const { return policy_.parallelism != Parallelism::model; }

  bool is_by_samples(graph::TensorId id) const {
    if (decided(id)) return have(id) == graph::split(0);
    return graph_.tensor(id).role == graph::Role::input && starts_by_samples();
  }

  std::vector<graph::ShardingSignature> allowed(graph::OperatorId id) {
    const graph::Operator& op = graph_.op(id);
    std::vector<graph::ShardingSignature> kept;
    const auto keep = [&](auto&& wanted) {
      for (const graph::ShardingSignature& way : ways(id)) {
        if (wanted(way)) kept.push_back(way);
      }
    };
    if (op.inputs.empty()) return {ways(id).back()};
    if (graph::definition_of(op).is_head) return ways(id);
    if (!has_weights(op)) {
      const bool by_samples = is_by_samples(op.inputs[0]);
      keep([&](const graph::ShardingSignature& way) {
        return (way.inputs[0] == graph::split(0)) == by_samples;
      });
    } else if (const auto named = policy_.layers.find(op.name); named != policy_.layers.end()) {
      keep([&](const graph::ShardingSignature& way) {
        return layer_sharding(way) == named->second;
      });
      if (kept.empty() && members_ > 1) refuse(op, named->second);
    } else {
      const bool by_samples = policy_.parallelism == Parallelism::data ||
                              (policy_.parallelism == Parallelism::hybrid &&
                               weights_of(op) == graph::OperatorDefinition::Weights::sliding);
      keep([&](const graph::ShardingSignature& way) {
        const auto sharding = layer_sharding(way);
        return sharding && (*sharding == LayerSharding::data) == by_samples;
      });
    }
    if (kept.empty()) {
      const bool by_samples = is_by_samples(op.inputs[0]) && members_ > 1;
      if (by_samples && graph::definition_of(op).has_running_statistics) {
        fail_input("Layer '{}' ({}) on one of {} devices {}, or synchronise it.", op.name, op.type,
                   members_, refusal_);
      }
      kept.push_back(ways(id).back());
    }
    return kept;
  }

  [[noreturn]] void refuse(const graph::Operator& op, LayerSharding wanted) const {
    fail_input(
        "Layer '{}' ({}) cannot be divided over {} devices as {}; its weights are {}, so choose "
        "another division or fewer devices.",
        op.name, op.type, members_, name_of(wanted), graph::to_string(type(op.inputs[1]).shape));
  }

  // How a tensor that nobody has used so far will lie if it is wanted so.
  graph::Sharding start(graph::TensorId id, const graph::Sharding& wanted) const {
    if (graph_.tensor(id).role == graph::Role::input) {
      return first_input_.value_or(wanted == graph::split(0) ? wanted : graph::broadcast());
    }
    return wanted == graph::partial() ? graph::broadcast() : wanted;
  }

  bool is_possible(const graph::Operator& op, const graph::ShardingSignature& way) const {
    for (int i : graph::definition_of(op.type).mutated_inputs) {
      const auto input = static_cast<size_t>(i);
      if (decided(op.inputs[input]) && have(op.inputs[input]) != way.inputs[input]) return false;
    }
    return true;
  }

  double cost_of(graph::OperatorId id, const graph::ShardingSignature& way) {
    const graph::Operator& op = graph_.op(id);
    double cost = 0;
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      const graph::TensorId input = op.inputs[i];
      const bool trained = result_.trained[static_cast<size_t>(input)];
      const graph::Sharding from = decided(input) ? have(input) : start(input, way.inputs[i]);
      cost += boxing_bytes_both_ways(from, way.inputs[i], bytes_of(type(input)), members_, trained);
      if (!decided(input) && trained && from == graph::broadcast()) {
        cost += boxing_bytes(graph::partial(), graph::broadcast(), bytes_of(type(input)), members_);
      }
    }
    for (size_t i = 0; i < op.outputs.size(); ++i) {
      const graph::TensorId output = op.outputs[i];
      const bool alike = way.outputs[i].kind != graph::Sharding::Kind::split;
      if (alike) cost += kReplicated * bytes_of(type(output));
      for (graph::OperatorId reader : readers_[static_cast<size_t>(output)]) {
        cost += cost_of_reading(output, way.outputs[i], reader);
      }
    }
    return cost;
  }

  double cost_of_reading(graph::TensorId tensor, const graph::Sharding& from,
                         graph::OperatorId reader) {
    const graph::Operator& op = graph_.op(reader);
    const bool trained = result_.trained[static_cast<size_t>(tensor)];
    double least = std::numeric_limits<double>::infinity();
    set(tensor, from);
    const auto candidates = allowed(reader);
    decided_[static_cast<size_t>(tensor)] = false;
    for (const graph::ShardingSignature& way : candidates) {
      for (size_t i = 0; i < op.inputs.size(); ++i) {
        if (op.inputs[i] != tensor) continue;
        least = std::min(least, boxing_bytes_both_ways(from, way.inputs[i], bytes_of(type(tensor)),
                                                       members_, trained));
      }
    }
    return least;
  }

  void set(graph::TensorId id, const graph::Sharding& sharding) {
    result_.tensors[static_cast<size_t>(id)] = sharding;
    decided_[static_cast<size_t>(id)] = true;
  }

  void choose(graph::OperatorId id) {
    const graph::Operator& op = graph_.op(id);
    const graph::ShardingSignature* best = nullptr;
    double least = std::numeric_limits<double>::infinity();
    const auto candidates = allowed(id);
    for (const graph::ShardingSignature& way : candidates) {
      if (!is_possible(op, way)) continue;
      const double cost = cost_of(id, way);
      if (cost >= least) continue;
      least = cost;
      best = &way;
    }
    if (best == nullptr) {
      fail_input("Layer '{}' ({}) shares state with a layer that is divided in another way.",
                 op.name, op.type);
    }
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      const graph::TensorId input = op.inputs[i];
      if (decided(input)) continue;
      set(input, start(input, best->inputs[i]));
      if (graph_.tensor(input).role != graph::Role::input || first_input_) continue;
      first_input_ = have(input);
    }
    for (size_t i = 0; i < op.outputs.size(); ++i) set(op.outputs[i], best->outputs[i]);
    result_.signatures[static_cast<size_t>(id)] = *best;
  }

  const ShardingPolicy& policy_;
  const int members_;
  ShardedGraph result_;
  const graph::Graph& graph_;
  const std::vector<std::vector<graph::OperatorId>> readers_;
  std::vector<bool> decided_;                                // by tensor
  std::vector<std::vector<graph::ShardingSignature>> ways_;  // by operator, once asked for
  std::optional<graph::Sharding> first_input_;
  std::string refusal_;
};

}  // namespace

ShardedGraph shard(const graph::Graph& forward, const ShardingPolicy& policy, int members) {
  if (members < 1) throw std::logic_error("a placement without devices");
  return Chooser(forward, policy, members).run();
}

graph::Shape local_shape(const graph::Shape& whole, const graph::Sharding& sharding, int member,
                         int members) {
  graph::Shape shape = whole;
  if (sharding.kind != graph::Sharding::Kind::split) return shape;
  int64_t& extent = shape.at(static_cast<size_t>(sharding.axis));
  extent = part_size(extent, member, members);
  if (extent == 0)
    throw std::logic_error("a part without rows of a tensor " + graph::to_string(whole));
  return shape;
}

std::map<std::string, LayerSharding> layer_choices(const ShardedGraph& sharded) {
  std::map<std::string, LayerSharding> choices;
  for (graph::OperatorId id : sharded.graph.order()) {
    const graph::Operator& op = sharded.graph.op(id);
    if (!has_weights(op)) continue;
    const auto choice = layer_sharding(sharded.signatures[static_cast<size_t>(id)]);
    if (choice) choices[op.name] = *choice;
  }
  return choices;
}

void require_layers(const graph::Graph& graph, const ShardingPolicy& policy) {
  for (const auto& [name, sharding] : policy.layers) {
    const bool exists = std::any_of(graph.order().begin(), graph.order().end(),
                                    [&, &name = name](graph::OperatorId id) {
                                      return graph.op(id).name == name && has_weights(graph.op(id));
                                    });
    if (exists) continue;
    fail_input("The plan divides a layer '{}', but no linear or convolution layer has that name.",
               name);
  }
}

}  // namespace millrace::parallel
