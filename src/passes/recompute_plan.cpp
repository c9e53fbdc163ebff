#include "passes/recompute_plan.h"

#include <algorithm>
#include <utility>

#include "passes/liveness.h"
#include "passes/rewrite.h"

namespace millrace::passes {
namespace {

// Floating-point operations in the time that moving one byte takes.
constexpr double kArithmeticPerByte = 8;

double arithmetic_of(const graph::Graph& graph, const graph::Operator& op,
                     const graph::OperatorDefinition& definition) {
  if (definition.arithmetic == nullptr) return 0;
  graph::Inference inference = {op, {}};
  for (graph::TensorId input : op.inputs) inference.inputs.push_back(graph.tensor(input).type);
  return definition.arithmetic(inference);
}

}  // namespace

RecomputePlanner::RecomputePlanner(const graph::Graph& graph, Scope scope,
                                   const RecomputeOptions& options)
    : graph_(graph), scope_(scope), memory_(options.memory) {
  gather_facts(options.storable);
  candidate_of_.assign(facts_.roots.size(), -1);
  find_candidates();
  if (scope_ == Scope::any) {
    add_views();
  } else {
    drop_costly_candidates();
  }
  drop_stale_candidates();
}

void RecomputePlanner::gather_facts(const std::vector<bool>& storable) {
  facts_.roots = storage_roots(graph_);
  facts_.is_result = result_flags(graph_);
  const size_t tensors = facts_.roots.size();
  for (graph::OperatorId id = 0; id < graph_.operator_count(); ++id) {
    const graph::Operator& op = graph_.op(id);
    const graph::OperatorDefinition& definition = graph::definition_of(op.type);
    facts_.definitions.push_back(&definition);
    facts_.written_by.push_back(mutated_tensors(op));
    clone_inputs_.push_back(
        definition.recompute_inputs == nullptr ? op.inputs : definition.recompute_inputs(op));
    clone_outputs_.push_back(op.outputs);
    if (!definition.recompute_type.empty()) clone_outputs_.back().resize(1);
  }
  for (graph::TensorId id = 0; id < graph_.tensor_count(); ++id) {
    const bool persistent = graph::is_persistent(graph_.tensor(id).role);
    facts_.bytes.push_back(persistent ? 0 : bytes_of(graph_.tensor(id)));
  }
  facts_.read_backward.assign(tensors, false);
  facts_.memory_read_backward.assign(tensors, false);
  for (graph::OperatorId id : graph_.order()) {
    if (graph_.op(id).phase == graph::Phase::forward) continue;
    for (graph::TensorId input : graph_.op(id).inputs) {
      const auto root = facts_.roots[static_cast<size_t>(input)];
      facts_.read_backward[static_cast<size_t>(input)] = true;
      facts_.memory_read_backward[static_cast<size_t>(root)] = true;
    }
  }
  facts_.is_stored.assign(tensors, !storable.empty());
  for (size_t t = 0; t < tensors && !storable.empty(); ++t) {
    const graph::TensorId root = facts_.roots[t];
    const bool stays =
        storable[t] || (!facts_.read_backward[t] && graph_.tensor(root).producer != graph::kNone);
    if (!stays) facts_.is_stored[static_cast<size_t>(root)] = false;
  }
}

void RecomputePlanner::find_candidates() {
  for (graph::TensorId id = 0; id < graph_.tensor_count(); ++id) {
    if (facts_.read_backward[static_cast<size_t>(id)]) consider(id);
  }
  for (size_t i = 0; i < candidates_.size(); ++i) {
    for (graph::TensorId input : clone_inputs(candidates_[i].producer)) consider(input);
  }
}

bool RecomputePlanner::may_repeat(graph::OperatorId op) const {
  const graph::OperatorDefinition& definition = *facts_.definitions[static_cast<size_t>(op)];
  if (graph_.op(op).phase != graph::Phase::forward) return false;
  if (!definition.cheap && !(scope_ == Scope::any && definition.repeatable)) return false;
  return !definition.recompute_type.empty() || facts_.written_by[static_cast<size_t>(op)].empty();
}

void RecomputePlanner::consider(graph::TensorId tensor) {
  const auto t = static_cast<size_t>(tensor);
  const graph::OperatorId producer = graph_.tensor(tensor).producer;
  if (producer == graph::kNone || candidate_of_[t] >= 0) return;
  if (facts_.roots[t] != tensor) {
    if (scope_ == Scope::any && may_repeat(producer)) consider(graph_.op(producer).inputs[0]);
    return;
  }
  const std::vector<graph::TensorId>& made = clone_outputs(producer);
  if (!may_repeat(producer) || std::find(made.begin(), made.end(), tensor) == made.end()) return;
  const auto result = [this](graph::TensorId id) {
    return facts_.is_result[static_cast<size_t>(id)];
  };
  if (std::any_of(made.begin(), made.end(), result)) return;
  RecomputeCandidate candidate;
  candidate.producer = producer;
  candidate.tensors = made;
  candidate.cheap = facts_.definitions[static_cast<size_t>(producer)]->cheap;
  for (graph::TensorId output : made) {
    candidate.bytes += kept_bytes(output);
    candidate.bytes_moved += facts_.bytes[static_cast<size_t>(output)];
    candidate_of_[static_cast<size_t>(output)] = static_cast<int>(candidates_.size());
  }
  double weights = 0;
  for (graph::TensorId input : clone_inputs(producer)) {
    candidate.bytes_moved += facts_.bytes[static_cast<size_t>(input)];
    const graph::Tensor& read = graph_.tensor(input);
    if (graph::is_persistent(read.role)) weights += static_cast<double>(bytes_of(read));
  }
  const graph::Operator& op = graph_.op(producer);
  candidate.cost =
      std::max(static_cast<double>(candidate.bytes_moved) + weights,
               arithmetic_of(graph_, op, *facts_.definitions[static_cast<size_t>(producer)]) /
                   kArithmeticPerByte);
  candidates_.push_back(std::move(candidate));
}

// Views of what is made again are taken again, too. A candidate that has a view which cannot be, or
// is a result, is none.
void RecomputePlanner::add_views() {
  for (graph::OperatorId id : graph_.order()) {
    const graph::Operator& op = graph_.op(id);
    if (!facts_.definitions[static_cast<size_t>(id)]->is_view || op.phase != graph::Phase::forward)
      continue;
    const int index = candidate_of_[static_cast<size_t>(op.inputs[0])];
    if (index < 0) continue;
    RecomputeCandidate& candidate = candidates_[static_cast<size_t>(index)];
    if (!may_repeat(id) || facts_.is_result[static_cast<size_t>(op.outputs[0])]) {
      drop(candidate);
      continue;
    }
    candidate.tensors.push_back(op.outputs[0]);
    candidate_of_[static_cast<size_t>(op.outputs[0])] = index;
  }
}

void RecomputePlanner::drop(const RecomputeCandidate& candidate) {
  for (graph::TensorId tensor : candidate.tensors) candidate_of_[static_cast<size_t>(tensor)] = -1;
}

bool RecomputePlanner::is_dropped(const RecomputeCandidate& candidate) const {
  return candidate_of(candidate.tensors[0]) < 0;
}

// Whether a clone may read the tensor in the backward pass without anything being kept for it.
bool RecomputePlanner::kept_without(graph::TensorId tensor) const {
  const auto t = static_cast<size_t>(tensor);
  const auto root = static_cast<size_t>(facts_.roots[t]);
  return candidate_of_[t] >= 0 || facts_.memory_read_backward[root] || facts_.is_result[root] ||
         graph::is_persistent(graph_.tensor(facts_.roots[t]).role);
}

int64_t RecomputePlanner::kept_bytes(graph::TensorId tensor) const {
  const auto t = static_cast<size_t>(tensor);
  const bool halved = facts_.is_stored[static_cast<size_t>(facts_.roots[t])];
  return halved ? facts_.bytes[t] / 2 : facts_.bytes[t];
}

void RecomputePlanner::drop_costly_candidates() {
  for (bool changed = true; changed;) {
    changed = false;
    for (const RecomputeCandidate& candidate : candidates_) {
      if (is_dropped(candidate)) continue;
      int64_t kept_instead = 0;
      for (graph::TensorId input : clone_inputs(candidate.producer)) {
        if (!kept_without(input)) kept_instead += kept_bytes(input);
      }
      if (kept_instead < candidate.bytes) continue;
      drop(candidate);
      changed = true;
    }
  }
}

void RecomputePlanner::drop_stale_candidates() {
  for (std::vector<graph::OperatorId> gone = stale(all()); !gone.empty(); gone = stale(all())) {
    for (graph::OperatorId op : gone) {
      const int index = candidate_of(graph_.op(op).outputs[0]);
      if (index >= 0) drop(candidates_[static_cast<size_t>(index)]);
    }
  }
  std::erase_if(candidates_, [this](const auto& candidate) { return is_dropped(candidate); });
  if (scope_ == Scope::any) {
    std::vector<size_t> position(static_cast<size_t>(graph_.operator_count()), 0);
    const std::vector<graph::OperatorId>& order = graph_.order();
    for (size_t i = 0; i < order.size(); ++i) position[static_cast<size_t>(order[i])] = i;
    std::sort(candidates_.begin(), candidates_.end(), [&](const auto& a, const auto& b) {
      return position[static_cast<size_t>(a.producer)] < position[static_cast<size_t>(b.producer)];
    });
  }
  for (size_t i = 0; i < candidates_.size(); ++i) {
    for (graph::TensorId tensor : candidates_[i].tensors) {
      candidate_of_[static_cast<size_t>(tensor)] = static_cast<int>(i);
    }
  }
}

std::vector<graph::OperatorId> RecomputePlanner::stale(const RecomputeChoice& choice) const {
  std::vector<bool> written(facts_.roots.size(), false);
  const auto root = [this](graph::TensorId id) {
    return static_cast<size_t>(facts_.roots[static_cast<size_t>(id)]);
  };
  std::vector<graph::OperatorId> operators;
  for (const Step& step : schedule(choice)) {
    if (!step.again) {
      for (graph::TensorId id : facts_.written_by[static_cast<size_t>(step.op)])
        written[root(id)] = true;
      continue;
    }
    const std::vector<graph::TensorId>& inputs = clone_inputs(step.op);
    const bool changed = std::any_of(inputs.begin(), inputs.end(),
                                     [&](graph::TensorId input) { return written[root(input)]; });
    if (changed) operators.push_back(step.op);
  }
  return operators;
}

RecomputeChoice RecomputePlanner::none() const {
  return RecomputeChoice(facts_.roots.size(), false);
}

RecomputeChoice RecomputePlanner::all() const {
  RecomputeChoice choice = none();
  for (size_t t = 0; t < choice.size(); ++t) choice[t] = candidate_of_[t] >= 0;
  return choice;
}

void RecomputePlanner::choose(RecomputeChoice& choice, const RecomputeCandidate& candidate,
                              bool again) {
  for (graph::TensorId tensor : candidate.tensors) choice[static_cast<size_t>(tensor)] = again;
}

const graph::OperatorDefinition& RecomputePlanner::clone_definition(graph::OperatorId op) const {
  const graph::OperatorDefinition& definition = *facts_.definitions[static_cast<size_t>(op)];
  return definition.recompute_type.empty() ? definition
                                           : graph::definition_of(definition.recompute_type);
}

std::vector<RecomputePlanner::Step> RecomputePlanner::schedule(
    const RecomputeChoice& choice) const {
  std::vector<Step> steps;
  std::vector<bool> cloned(static_cast<size_t>(graph_.operator_count()), false);
  const auto clone = [&](auto&& self, graph::TensorId tensor) -> void {
    if (!choice[static_cast<size_t>(tensor)]) return;
    const graph::OperatorId op = graph_.tensor(tensor).producer;
    if (cloned[static_cast<size_t>(op)]) return;
    cloned[static_cast<size_t>(op)] = true;
    for (graph::TensorId input : clone_inputs(op)) self(self, input);
    steps.push_back({op, true});
  };
  for (graph::OperatorId id : graph_.order()) {
    if (graph_.op(id).phase != graph::Phase::forward) {
      for (graph::TensorId input : graph_.op(id).inputs) clone(clone, input);
    }
    steps.push_back({id, false});
  }
  return steps;
}

double RecomputePlanner::cost(const RecomputeChoice& choice) const {
  double sum = 0;
  for (const Step& step : schedule(choice)) {
    const int index = step.again ? candidate_of(graph_.op(step.op).outputs[0]) : -1;
    const bool view = facts_.definitions[static_cast<size_t>(step.op)]->is_view;
    if (index >= 0 && !view) sum += candidates_[static_cast<size_t>(index)].cost;
  }
  return sum;
}

}  // namespace millrace::passes
