// A brute-force check of shared storage.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/operator_definition.h"

namespace millrace::passes {

// Plays the order over memory cells that hold values: every read must find the value it expects,
// and an operator may write the memory of one of its own inputs only as its definition allows.
// Returns the first fault, or "".
inline std::string storage_fault(const graph::Graph& graph) {
  const auto count = static_cast<size_t>(graph.tensor_count());
  std::vector<graph::TensorId> value(
      count, graph::kNone);  // what a tensor means; views mean what they see
  std::vector<graph::TensorId> memory(count,
                                      graph::kNone);  // what lies in the memory that a tensor owns
  const auto cell = [&](graph::TensorId id) {
    while (graph.tensor(id).storage != graph::kNone) id = graph.tensor(id).storage;
    return static_cast<size_t>(id);
  };
  for (size_t id = 0; id < count; ++id) {
    if (graph::is_persistent(graph.tensor(static_cast<graph::TensorId>(id)).role)) {
      value[id] = memory[id] = static_cast<graph::TensorId>(id);
    }
  }
  const auto intact = [&](graph::TensorId id) {
    return memory[cell(id)] == value[static_cast<size_t>(id)];
  };
  for (graph::OperatorId id : graph.order()) {
    const graph::Operator& op = graph.op(id);
    const graph::OperatorDefinition& definition = graph::definition_of(op.type);
    for (graph::TensorId input : op.inputs) {
      if (!intact(input)) return op.name + " reads " + graph.tensor(input).name + ", overwritten";
    }
    for (size_t o = 0; o < op.outputs.size(); ++o) {
      const graph::TensorId output = op.outputs[o];
      if (definition.is_view) {
        value[static_cast<size_t>(output)] = value[static_cast<size_t>(op.inputs[0])];
        if (cell(output) != cell(op.inputs[0])) return op.name + " is a view of nothing";
        continue;
      }
      int shared = 0;
      for (size_t i = 0; i < op.inputs.size(); ++i) {
        if (cell(op.inputs[i]) != cell(output)) continue;
        ++shared;
        const bool allowed = std::any_of(
            definition.in_place.begin(), definition.in_place.end(), [&](const auto& pair) {
              return pair.output == static_cast<int>(o) && pair.input == static_cast<int>(i);
            });
        const graph::Tensor& from = graph.tensor(op.inputs[i]);
        const graph::Tensor& to = graph.tensor(output);
        if (!allowed) return op.name + " may not write over input " + std::to_string(i);
        if (from.type != to.type || from.layout != to.layout) return op.name + " changes the type";
      }
      if (shared > 1) return op.name + " reads the memory it writes twice";
      if (graph::is_persistent(graph.tensor(static_cast<graph::TensorId>(cell(output))).role)) {
        return op.name + " writes over a persistent tensor";
      }
      value[static_cast<size_t>(output)] = output;
      memory[cell(output)] = output;
    }
    for (graph::TensorId output : op.outputs) {
      if (!intact(output)) return op.name + " writes two outputs to the same memory";
    }
  }
  for (graph::TensorId result : graph.results()) {
    if (!intact(result)) return "result " + graph.tensor(result).name + " is overwritten";
  }
  return "";
}

}  // namespace millrace::passes
