#include "passes/recompute.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "passes/recompute_plan.h"

namespace millrace {
namespace {

// Keeps whatever can be kept at no greater peak, dearest first.
void give_back(const RecomputePlanner& planner, RecomputeChoice& choice, int64_t peak,
               int64_t budget_bytes) {
  std::vector<RecomputeCandidate> dearest_first = planner.candidates();
  std::stable_sort(dearest_first.begin(), dearest_first.end(),
                   [](const RecomputeCandidate& a, const RecomputeCandidate& b) {
                     return a.bytes_moved > b.bytes_moved;
                   });
  for (const RecomputeCandidate& candidate : dearest_first) {
    const auto t = static_cast<size_t>(candidate.tensor);
    choice[t] = false;
    const int64_t without = planner.peak(choice);
    if (without <= std::max(peak, budget_bytes) && planner.stale(choice).empty()) {
      peak = std::min(peak, without);
    } else {
      choice[t] = true;
    }
  }
}

int apply(Graph& graph, const RecomputePlanner& planner, const RecomputeChoice& choice) {
  // Scheduled first: adding operators ends the planner's view of the graph.
  const std::vector<RecomputePlanner::Step> steps = planner.schedule(choice);
  const std::vector<RecomputeCandidate> candidates = planner.candidates();
  std::vector<TensorId> again(static_cast<size_t>(graph.tensor_count()), kNone);
  const auto newest = [&](TensorId tensor) {
    const TensorId clone = again[static_cast<size_t>(tensor)];
    return clone == kNone ? tensor : clone;
  };
  std::vector<OperatorId> order;
  int clones = 0;
  for (const auto& step : steps) {
    if (step.candidate < 0) {
      Operator& op = graph.op(step.op);
      if (op.phase != Phase::forward) {
        std::transform(op.inputs.begin(), op.inputs.end(), op.inputs.begin(), newest);
      }
      order.push_back(step.op);
      continue;
    }
    const Operator op = graph.op(step.op);
    const std::string_view type = definition_of(op.type).recompute_type;
    std::vector<TensorId> inputs = candidates[static_cast<size_t>(step.candidate)].inputs;
    std::transform(inputs.begin(), inputs.end(), inputs.begin(), newest);
    const OperatorId clone = graph.add_operator(type.empty() ? op.type : type, op.name + "/again",
                                                std::move(inputs), op.attributes, Phase::backward);
    again[static_cast<size_t>(op.outputs[0])] = graph.op(clone).outputs[0];
    order.push_back(clone);
    ++clones;
  }
  graph.set_order(std::move(order));
  return clones;
}

}  // namespace

int recompute(Graph& graph, RecomputePolicy policy, int64_t budget_bytes,
              const std::vector<bool>& storable) {
  if (policy == RecomputePolicy::none) return 0;
  const RecomputePlanner planner(graph, storable);
  RecomputeChoice choice = planner.all();
  const int64_t peak = planner.peak(choice);
  if (peak >= planner.peak(planner.none())) return 0;
  if (policy == RecomputePolicy::automatic) give_back(planner, choice, peak, budget_bytes);
  return apply(graph, planner, choice);
}

}  // namespace millrace
