// Turns a graph into an ONNX model.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "models/onnx/model.h"

namespace millrace::models::onnx {

inline constexpr int64_t kFirstOpset = 13;
inline constexpr int64_t kLastOpset = 21;

struct ExportSettings {
  int64_t opset = 17;       // of ai.onnx
  bool fold = false;        // batch normalisations into what comes before them
  std::string result = {};  // the tensor that the model gives
};

// The values of a parameter or buffer, in row-major order.
using WeightValues = std::function<std::vector<float>(const graph::Tensor&)>;

// A model of what `result` needs, with an open batch. The graph is one that evaluates: forward,
// with running statistics, without dropout. Throws InputError for settings out of range and for an
// operator that ONNX has no node for, naming the layer.
Model export_graph(const graph::Graph& graph, const WeightValues& weights,
                   const ExportSettings& settings);

// What operators are written with. One thread.
class Exporter {
 public:
  Exporter(const graph::Graph& graph, const WeightValues& weights, const ExportSettings& settings);

  Model take();

  const graph::Graph& graph() const { return graph_; }
  int64_t opset() const { return model_.opset; }
  const graph::Shape& shape(graph::TensorId id) const { return graph_.tensor(id).type.shape; }
  const std::string& name(graph::TensorId id) const { return graph_.tensor(id).name; }

  // The values of a weight; those of `folded` where a normalisation went into it.
  std::vector<float> values(graph::TensorId id) const { return weights_(graph_.tensor(id)); }

  // Adds a constant and returns its name.
  std::string constant(std::string name, graph::Shape shape, std::vector<float> values);
  std::string constant(std::string name, const std::vector<int64_t>& values);
  // A weight of the graph as such, with another shape of the same size if one is given.
  std::string weight(graph::TensorId id, graph::Shape shape = {});

  void node(std::string_view type, std::vector<std::string> inputs, std::string output,
            std::vector<NodeAttribute> attributes = {});

  // The normalisation behind an operator that is to be folded into it, or null.
  const graph::Operator* folded_into(const graph::Operator& op) const;

 private:
  void choose_folded();
  void write_operator(graph::OperatorId id);

  const graph::Graph& graph_;
  const WeightValues& weights_;
  ExportSettings settings_;
  graph::TensorId result_ = graph::kNone;
  std::vector<graph::OperatorId> needed_;
  std::map<const graph::Operator*, const graph::Operator*> folded_;  // by what they went into
  std::vector<bool> left_out_;                                       // by operator
  Model model_;
};

NodeAttribute attribute(std::string_view name, int64_t value);
NodeAttribute attribute(std::string_view name, double value);
NodeAttribute attribute(std::string_view name, std::vector<int64_t> values);

// A matrix (in x out) that averages as adaptive pooling does: column i the elements from
// floor(i × in / out) to ceil((i + 1) × in / out).
std::vector<float> averaging(int64_t in, int64_t out);

// How an operator of a type is written; null if ONNX has no node for it.
using WriteOperator = void (*)(Exporter& exporter, const graph::Operator& op);
WriteOperator find_writer(std::string_view type);

}  // namespace millrace::models::onnx
