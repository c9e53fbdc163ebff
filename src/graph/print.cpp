#include <fmt/format.h>
#include <fmt/ranges.h>

#include "graph/graph.h"

namespace millrace::graph {
namespace {

std::string describe(const Tensor& tensor) {
  std::string text = fmt::format("{}[{} {}", tensor.name, name_of(tensor.type.dtype),
                                 to_string(tensor.type.shape));
  if (!tensor.layout.is_plain()) text += fmt::format(" {}", tensor.layout.tag());
  if (tensor.storage != kNone) text += " in-place";
  return text + "]";
}

std::string list(const Graph& graph, const std::vector<TensorId>& ids) {
  std::vector<std::string> parts;
  for (TensorId id : ids) parts.push_back(describe(graph.tensor(id)));
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace

std::string to_text(const Graph& graph) {
  std::string text;
  for (OperatorId id : graph.order()) {
    const Operator& op = graph.op(id);
    text += fmt::format("{:<8} {} = {}({})", name_of(op.phase), list(graph, op.outputs), op.type,
                        list(graph, op.inputs));
    const std::string attributes = op.attributes.to_string();
    if (!attributes.empty()) text += fmt::format(" {{{}}}", attributes);
    text += "\n";
  }
  return text;
}

std::string to_graphviz(const Graph& graph) {
  std::string text = "digraph millrace {\n  node [shape=box, fontname=\"sans-serif\"];\n";
  for (OperatorId id : graph.order()) {
    const Operator& op = graph.op(id);
    constexpr const char* kColours[] = {"#dbeafe", "#fde68a", "#dcfce7"};
    text += fmt::format("  n{} [label=\"{}\\n{}\", style=filled, fillcolor=\"{}\"];\n", id, op.name,
                        op.type, kColours[static_cast<size_t>(op.phase)]);
    for (TensorId input : op.inputs) {
      const Tensor& tensor = graph.tensor(input);
      if (tensor.producer == kNone) continue;
      text += fmt::format("  n{} -> n{} [label=\"{}\"];\n", tensor.producer, id,
                          to_string(tensor.type.shape));
    }
  }
  return text + "}\n";
}

}  // namespace millrace::graph
