// Evaluates graphs with symbols instead of numbers: two graphs that compute the same give equal
// values, whatever was fused, recomputed, reordered or moved. Independent of the passes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "graph/graph.h"
#include "graph/operator_definition.h"

namespace millrace::passes {

class Symbolic {
 public:
  // Runs every operator once. The values of results and of persistent tensors follow by name.
  explicit Symbolic(const graph::Graph& graph) : graph_(graph) {
    values_.resize(static_cast<size_t>(graph.tensor_count()), 0);
    for (graph::TensorId id = 0; id < graph.tensor_count(); ++id) {
      if (graph::is_persistent(graph.tensor(id).role))
        value(id) = mix("tensor", {}, graph.tensor(id).name);
    }
    for (graph::OperatorId id : graph.order()) run(graph.op(id));
  }

  std::vector<uint64_t> results() const {
    std::vector<uint64_t> all;
    for (graph::TensorId id : graph_.results()) all.push_back(values_[static_cast<size_t>(id)]);
    return all;
  }

  std::map<std::string, uint64_t> persistent() const {
    std::map<std::string, uint64_t> all;
    for (graph::TensorId id = 0; id < graph_.tensor_count(); ++id) {
      if (!graph::is_persistent(graph_.tensor(id).role)) continue;
      all[graph_.tensor(id).name] = values_[static_cast<size_t>(id)];
    }
    return all;
  }

 private:
  uint64_t& value(graph::TensorId id) { return values_.at(static_cast<size_t>(id)); }

  static uint64_t mix(const std::string& what, const std::vector<uint64_t>& parts,
                      const std::string& detail = {}) {
    uint64_t hash = std::hash<std::string>()(what + "|" + detail);
    for (uint64_t part : parts) {
      hash = (hash ^ part) * 0x9e3779b97f4a7c15u;
      hash ^= hash >> 29;
    }
    return hash;
  }

  uint64_t relu(uint64_t x) {
    if (before_relu_.count(x) > 0) return x;
    const uint64_t y = mix("relu", {x});
    before_relu_[y] = x;
    return y;
  }

  static uint64_t add(uint64_t a, uint64_t b) {
    return mix("add", {std::min(a, b), std::max(a, b)});
  }

  void run(const graph::Operator& op) {
    std::vector<uint64_t> in;
    for (graph::TensorId id : op.inputs) in.push_back(value(id));
    graph::Attributes attributes = op.attributes;
    attributes.set("relu", false);
    attributes.set("residual", false);
    const std::string detail = attributes.to_string();
    std::vector<uint64_t> out;
    if (op.type == "relu") {
      out = {relu(in[0])};
    } else if (op.type == "reorder") {
      out = {in[0]};
    } else if (op.type == "add") {
      out = {add(in[0], in[1])};
    } else if (op.type == "add_relu_backward") {
      out = {mix("relu_backward", {add(in[0], in[1]), in[2]})};
    } else if (op.type == "relu_backward") {
      out = {mix("relu_backward", in)};
    } else if (op.type == "batch_norm" || op.type == "batch_norm_apply") {
      out = normalise(op, in);
    } else if (op.type == "max_pool") {
      const auto inner = before_relu_.find(in[0]);
      const uint64_t y =
          mix("max_pool", {inner == before_relu_.end() ? in[0] : inner->second}, detail);
      out = {inner == before_relu_.end() ? y : relu(y), mix("indices", {y})};
    } else {
      for (size_t i = 0; i < op.outputs.size(); ++i) {
        out.push_back(mix(op.type + std::to_string(i), in, detail));
      }
    }
    const bool forward = op.phase == graph::Phase::forward || op.name.ends_with("/again");
    if (op.attributes.flag("relu") && forward) out[0] = relu(out[0]);
    if (op.attributes.flag("relu") && op.type == "batch_norm_backward") {
      for (uint64_t& gradient : out) gradient = mix("masked", {gradient});
    }
    for (size_t i = 0; i < op.outputs.size(); ++i) value(op.outputs[i]) = out[i];
    if (op.attributes.flag("inference")) return;
    for (int input : graph::definition_of(op.type).mutated_inputs) {
      value(op.inputs[static_cast<size_t>(input)]) =
          mix("written" + std::to_string(input) + op.type, in, detail);
    }
  }

  std::vector<uint64_t> normalise(const graph::Operator& op, std::vector<uint64_t>& in) {
    const bool apply = op.type == "batch_norm_apply";
    const uint64_t mean = apply ? in[3] : mix("mean", {in[0]});
    const uint64_t inverse = apply ? in[4] : mix("inverse", {in[0]});
    uint64_t y = mix("normalised", {in[0], in[1], in[2], mean, inverse});
    if (op.attributes.flag("residual")) {
      y = add(y, in[5]);
      in.pop_back();
    }
    return apply ? std::vector<uint64_t>{y} : std::vector<uint64_t>{y, mean, inverse};
  }

  const graph::Graph& graph_;
  std::vector<uint64_t> values_;
  std::map<uint64_t, uint64_t> before_relu_;
};

}  // namespace millrace::passes
