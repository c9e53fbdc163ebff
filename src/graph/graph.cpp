#include "graph/graph.h"

#include <fmt/format.h>

#include <stdexcept>

#include "base/error.h"
#include "graph/operator_definition.h"

namespace millrace::graph {
namespace {

Inference inference_of(const Graph& graph, const Operator& op) {
  Inference inference = {op, {}};
  for (TensorId id : op.inputs) inference.inputs.push_back(graph.tensor(id).type);
  return inference;
}

}  // namespace

std::string_view name_of(Role role) {
  constexpr std::string_view kNames[] = {"input",       "parameter",    "buffer",
                                         "activation",  "gradient",     "optimizer_state",
                                         "accumulator", "communication"};
  return kNames[static_cast<size_t>(role)];
}

bool is_persistent(Role role) {
  return role == Role::input || role == Role::parameter || role == Role::buffer ||
         role == Role::optimizer_state || role == Role::accumulator;
}

std::string_view name_of(Phase phase) {
  constexpr std::string_view kNames[] = {"forward", "backward", "update"};
  return kNames[static_cast<size_t>(phase)];
}

TensorId Graph::add_tensor(Tensor tensor) {
  tensors_.push_back(std::move(tensor));
  return static_cast<TensorId>(tensors_.size()) - 1;
}

OperatorId Graph::add_operator(std::string_view type, std::string name,
                               std::vector<TensorId> inputs, Attributes attributes, Phase phase) {
  Operator op = {
      std::string(type), std::move(name), std::move(inputs), {}, std::move(attributes), phase};
  std::vector<TensorType> outputs;
  try {
    outputs = definition_of(type).infer(inference_of(*this, op));
  } catch (const InputError& error) {
    fail_input("Layer '{}' ({}): {}", op.name, op.type, error.marked());
  }
  const auto id = static_cast<OperatorId>(operators_.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    Tensor output;
    output.name = i == 0 ? op.name : fmt::format("{}:{}", op.name, i);
    output.type = std::move(outputs[i]);
    output.producer = id;
    op.outputs.push_back(add_tensor(std::move(output)));
  }
  operators_.push_back(std::move(op));
  order_.push_back(id);
  return id;
}

TensorId Graph::apply(std::string_view type, std::string name, std::vector<TensorId> inputs,
                      Attributes attributes, Phase phase) {
  const OperatorId id =
      add_operator(type, std::move(name), std::move(inputs), std::move(attributes), phase);
  return op(id).outputs.at(0);
}

TensorId Graph::find_tensor(std::string_view name) const {
  for (size_t id = 0; id < tensors_.size(); ++id) {
    if (tensors_[id].name == name) return static_cast<TensorId>(id);
  }
  return kNone;
}

std::vector<std::vector<OperatorId>> Graph::consumers() const {
  std::vector<std::vector<OperatorId>> readers(tensors_.size());
  for (OperatorId id : order_) {
    for (TensorId input : op(id).inputs) {
      auto& list = readers[static_cast<size_t>(input)];
      if (list.empty() || list.back() != id) list.push_back(id);
    }
  }
  return readers;
}

void Graph::validate() const {
  std::vector<bool> available(tensors_.size(), false);
  for (size_t id = 0; id < tensors_.size(); ++id) {
    available[id] = is_persistent(tensors_[id].role);
  }
  for (OperatorId id : order_) {
    const Operator& current = op(id);
    const auto fault = [&](const std::string& what) {
      throw std::logic_error(
          fmt::format("operator '{}' ({}): {}", current.name, current.type, what));
    };
    const OperatorDefinition& definition = definition_of(current.type);
    for (const int mutated : definition.mutated_inputs) {
      if (static_cast<size_t>(mutated) >= current.inputs.size()) continue;
      const Tensor& changed = tensor(current.inputs[static_cast<size_t>(mutated)]);
      if (is_persistent(changed.role)) continue;
      fault(fmt::format("changes '{}', which does not last", changed.name));
    }
    for (TensorId input : current.inputs) {
      if (!available.at(static_cast<size_t>(input))) {
        fault(fmt::format("reads '{}' before it is made", tensor(input).name));
      }
    }
    const auto types = definition.infer(inference_of(*this, current));
    if (types.size() != current.outputs.size()) fault("has another number of outputs");
    for (size_t i = 0; i < types.size(); ++i) {
      const Tensor& output = tensor(current.outputs[i]);
      if (available[static_cast<size_t>(current.outputs[i])]) {
        fault(fmt::format("makes '{}' a second time", output.name));
      }
      if (output.type != types[i]) fault(fmt::format("output '{}' has another type", output.name));
      if (output.producer != id) fault(fmt::format("is not the producer of '{}'", output.name));
      available[static_cast<size_t>(current.outputs[i])] = true;
    }
  }
  for (TensorId result : results_) {
    if (!available.at(static_cast<size_t>(result))) {
      throw std::logic_error(fmt::format("result '{}' is never made", tensor(result).name));
    }
  }
}

}  // namespace millrace::graph
