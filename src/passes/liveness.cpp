#include "passes/liveness.h"

#include <algorithm>
#include <tuple>

#include "graph/operator_definition.h"
#include "passes/rewrite.h"

namespace millrace {

std::vector<TensorId> storage_roots(const Graph& graph) {
  std::vector<TensorId> roots(static_cast<size_t>(graph.tensor_count()));
  for (TensorId id = 0; id < graph.tensor_count(); ++id) roots[static_cast<size_t>(id)] = id;
  for (OperatorId id : graph.order()) {
    const Operator& op = graph.op(id);
    for (TensorId output : op.outputs) {
      TensorId owner = graph.tensor(output).storage;
      if (owner == kNone && definition_of(op.type).is_view) owner = op.inputs[0];
      if (owner != kNone) {
        roots[static_cast<size_t>(output)] = roots[static_cast<size_t>(owner)];
      }
    }
  }
  return roots;
}

std::vector<Lifetime> lifetimes(const Graph& graph, bool fetched) {
  const std::vector<TensorId> roots = storage_roots(graph);
  std::vector<Lifetime> by_root(roots.size(), Lifetime{kNone, 0, 0, 0});
  const auto touch = [&](TensorId tensor, int position) {
    const TensorId root = roots[static_cast<size_t>(tensor)];
    if (is_persistent(graph.tensor(root).role)) return;
    Lifetime& life = by_root[static_cast<size_t>(root)];
    if (life.tensor == kNone) life = {root, position, position, 0};
    life.last = std::max(life.last, position);
    life.bytes = std::max(life.bytes, bytes_of(graph.tensor(tensor)));
  };
  const std::vector<OperatorId>& order = graph.order();
  for (size_t i = 0; i < order.size(); ++i) {
    const auto position = static_cast<int>(i);
    for (TensorId input : graph.op(order[i]).inputs) touch(input, position);
    for (TensorId output : graph.op(order[i]).outputs) touch(output, position);
  }
  const int end = std::max(0, static_cast<int>(order.size()) - 1);
  if (!fetched) {
    for (TensorId result : graph.results()) touch(result, end);
  }

  std::erase_if(by_root, [](const Lifetime& life) { return life.tensor == kNone; });
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

}  // namespace millrace
