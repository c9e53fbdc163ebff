#include "passes/liveness.h"

#include <algorithm>
#include <tuple>

#include "graph/operator_definition.h"
#include "passes/rewrite.h"

namespace millrace::passes {

std::vector<graph::TensorId> storage_roots(const graph::Graph& graph) {
  std::vector<graph::TensorId> roots(static_cast<size_t>(graph.tensor_count()));
  for (graph::TensorId id = 0; id < graph.tensor_count(); ++id) roots[static_cast<size_t>(id)] = id;
  for (graph::OperatorId id : graph.order()) {
    const graph::Operator& op = graph.op(id);
    for (graph::TensorId output : op.outputs) {
      graph::TensorId owner = graph.tensor(output).storage;
      if (owner == graph::kNone && graph::definition_of(op.type).is_view) owner = op.inputs[0];
      if (owner != graph::kNone) {
        roots[static_cast<size_t>(output)] = roots[static_cast<size_t>(owner)];
      }
    }
  }
  return roots;
}

std::vector<Lifetime> lifetimes(const graph::Graph& graph, bool fetched) {
  const std::vector<graph::TensorId> roots = storage_roots(graph);
  std::vector<Lifetime> by_root(roots.size(), Lifetime{graph::kNone, 0, 0, 0});
  const auto touch = [&](graph::TensorId tensor, int position) {
    const graph::TensorId root = roots[static_cast<size_t>(tensor)];
    if (graph::is_persistent(graph.tensor(root).role)) return;
    Lifetime& life = by_root[static_cast<size_t>(root)];
    if (life.tensor == graph::kNone) life = {root, position, position, 0};
    life.last = std::max(life.last, position);
    life.bytes = std::max(life.bytes, bytes_of(graph.tensor(tensor)));
  };
  const std::vector<graph::OperatorId>& order = graph.order();
  for (size_t i = 0; i < order.size(); ++i) {
    const auto position = static_cast<int>(i);
    for (graph::TensorId input : graph.op(order[i]).inputs) touch(input, position);
    for (graph::TensorId output : graph.op(order[i]).outputs) touch(output, position);
  }
  const int end = std::max(0, static_cast<int>(order.size()) - 1);
  if (!fetched) {
    for (graph::TensorId result : graph.results()) touch(result, end);
  }

  std::erase_if(by_root, [](const Lifetime& life) { return life.tensor == graph::kNone; });
  std::sort(by_root.begin(), by_root.end(), [](const Lifetime& a, const Lifetime& b) {
    return std::tie(a.first, a.tensor) < std::tie(b.first, b.tensor);
  });
  return by_root;
}

int64_t peak_bytes(const std::vector<Lifetime>& lifetimes) {
  int end = 0;
  for (const Lifetime& life : lifetimes) end = std::max(end, life.last);
  std::vector<int64_t> change(static_cast<size_t>(end) + 2, 0);
  for (const Lifetime& life : lifetimes) {
    change[static_cast<size_t>(life.first)] += life.bytes;
    change[static_cast<size_t>(life.last) + 1] -= life.bytes;
  }
  int64_t in_use = 0;
  int64_t peak = 0;
  for (int64_t bytes : change) peak = std::max(peak, in_use += bytes);
  return peak;
}

}  // namespace millrace::passes
