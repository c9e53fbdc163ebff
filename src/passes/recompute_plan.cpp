#include "passes/recompute_plan.h"

#include <algorithm>
#include <limits>

#include "passes/liveness.h"
#include "passes/rewrite.h"
#include "passes/storage.h"

namespace millrace {

RecomputePlanner::RecomputePlanner(const Graph& graph, const std::vector<bool>& storable)
    : graph_(graph),
      roots_(storage_roots(graph)),
      is_stored_(roots_.size(), !storable.empty()),
      is_result_(result_flags(graph)),
      candidate_of_(roots_.size(), -1) {
  for (OperatorId id = 0; id < graph.operator_count(); ++id) {
    definitions_.push_back(&definition_of(graph.op(id).type));
    written_by_.push_back(mutated_tensors(graph.op(id)));
  }
  for (TensorId id = 0; id < graph.tensor_count(); ++id) {
    const bool persistent = is_persistent(graph.tensor(id).role);
    bytes_.push_back(persistent ? 0 : bytes_of(graph.tensor(id)));
  }
  read_backward_.assign(roots_.size(), false);
  memory_read_backward_.assign(roots_.size(), false);
  for (OperatorId id : graph.order()) {
    if (graph.op(id).phase == Phase::forward) continue;
    for (TensorId input : graph.op(id).inputs) {
      read_backward_[static_cast<size_t>(input)] = true;
      memory_read_backward_[static_cast<size_t>(roots_[static_cast<size_t>(input)])] = true;
    }
  }
  for (size_t t = 0; t < roots_.size() && !storable.empty(); ++t) {
    const bool stays =
        storable[t] || (!read_backward_[t] && graph.tensor(roots_[t]).producer != kNone);
    if (!stays) is_stored_[static_cast<size_t>(roots_[t])] = false;
  }
  find_candidates();
  drop_costly_candidates();
  drop_stale_candidates();
}

void RecomputePlanner::find_candidates() {
  for (TensorId id = 0; id < graph_.tensor_count(); ++id) {
    if (read_backward_[static_cast<size_t>(id)]) consider(id);
  }
  for (size_t i = 0; i < candidates_.size(); ++i) {
    const std::vector<TensorId> inputs = candidates_[i].inputs;
    for (TensorId input : inputs) consider(input);
  }
}

void RecomputePlanner::consider(TensorId tensor) {
  const auto t = static_cast<size_t>(tensor);
  const OperatorId producer = graph_.tensor(tensor).producer;
  if (producer == kNone || candidate_of_[t] >= 0 || is_result_[t] || roots_[t] != tensor) return;
  const Operator& op = graph_.op(producer);
  const OperatorDefinition& definition = *definitions_[static_cast<size_t>(producer)];
  if (!definition.cheap || op.phase != Phase::forward || op.outputs[0] != tensor) return;
  if (definition.recompute_type.empty() && !written_by_[static_cast<size_t>(producer)].empty())
    return;
  RecomputeCandidate candidate = {tensor, producer, op.inputs, bytes_[t]};
  if (definition.recompute_inputs != nullptr) candidate.inputs = definition.recompute_inputs(op);
  for (TensorId input : candidate.inputs) {
    candidate.bytes_moved += bytes_[static_cast<size_t>(input)];
  }
  candidate_of_[t] = static_cast<int>(candidates_.size());
  candidates_.push_back(std::move(candidate));
}

void RecomputePlanner::drop(TensorId tensor) { candidate_of_[static_cast<size_t>(tensor)] = -1; }

// Whether a clone may read the tensor in the backward pass without anything being kept for it.
bool RecomputePlanner::kept_without(TensorId tensor) const {
  const auto t = static_cast<size_t>(tensor);
  const auto root = static_cast<size_t>(roots_[t]);
  return candidate_of_[t] >= 0 || memory_read_backward_[root] || is_result_[root] ||
         is_persistent(graph_.tensor(roots_[t]).role);
}

int64_t RecomputePlanner::kept_bytes(TensorId tensor) const {
  const auto t = static_cast<size_t>(tensor);
  return is_stored_[static_cast<size_t>(roots_[t])] ? bytes_[t] / 2 : bytes_[t];
}

void RecomputePlanner::drop_costly_candidates() {
  for (bool changed = true; changed;) {
    changed = false;
    for (const RecomputeCandidate& candidate : candidates_) {
      if (candidate_of_[static_cast<size_t>(candidate.tensor)] < 0) continue;
      int64_t kept_instead = 0;
      for (TensorId input : candidate.inputs) {
        if (!kept_without(input)) kept_instead += kept_bytes(input);
      }
      if (kept_instead < kept_bytes(candidate.tensor)) continue;
      drop(candidate.tensor);
      changed = true;
    }
  }
}

void RecomputePlanner::drop_stale_candidates() {
  for (std::vector<TensorId> gone = stale(all()); !gone.empty(); gone = stale(all())) {
    for (TensorId tensor : gone) drop(tensor);
  }
  std::erase_if(candidates_, [this](const RecomputeCandidate& candidate) {
    return candidate_of_[static_cast<size_t>(candidate.tensor)] < 0;
  });
  for (size_t i = 0; i < candidates_.size(); ++i) {
    candidate_of_[static_cast<size_t>(candidates_[i].tensor)] = static_cast<int>(i);
  }
}

std::vector<TensorId> RecomputePlanner::stale(const RecomputeChoice& choice) const {
  std::vector<bool> written(roots_.size(), false);
  std::vector<TensorId> tensors;
  for (const Step& step : schedule(choice)) {
    if (step.candidate < 0) {
      for (TensorId id : written_by_[static_cast<size_t>(step.op)]) {
        written[static_cast<size_t>(roots_[static_cast<size_t>(id)])] = true;
      }
      continue;
    }
    const RecomputeCandidate& candidate = candidates_[static_cast<size_t>(step.candidate)];
    const bool changed =
        std::any_of(candidate.inputs.begin(), candidate.inputs.end(), [&](TensorId input) {
          return written[static_cast<size_t>(roots_[static_cast<size_t>(input)])];
        });
    if (changed) tensors.push_back(candidate.tensor);
  }
  return tensors;
}

RecomputeChoice RecomputePlanner::none() const { return RecomputeChoice(roots_.size(), false); }

RecomputeChoice RecomputePlanner::all() const {
  RecomputeChoice choice = none();
  for (size_t t = 0; t < roots_.size(); ++t) choice[t] = candidate_of_[t] >= 0;
  return choice;
}

std::vector<RecomputePlanner::Step> RecomputePlanner::schedule(
    const RecomputeChoice& choice) const {
  std::vector<Step> steps;
  std::vector<bool> cloned(roots_.size(), false);
  const auto clone = [&](auto&& self, TensorId tensor) -> void {
    const auto t = static_cast<size_t>(tensor);
    if (!choice[t] || cloned[t]) return;
    cloned[t] = true;
    const int index = candidate_of_[t];
    for (TensorId input : candidates_[static_cast<size_t>(index)].inputs) self(self, input);
    steps.push_back({candidates_[static_cast<size_t>(index)].producer, index});
  };
  for (OperatorId id : graph_.order()) {
    if (graph_.op(id).phase != Phase::forward) {
      for (TensorId input : graph_.op(id).inputs) clone(clone, input);
    }
    steps.push_back({id, -1});
  }
  return steps;
}

// Walks a schedule and keeps account of memory. Slots below the number of tensors are tensors of
// the graph, those above are what clones make of them.
class RecomputePlanner::Sweep {
 public:
  Sweep(const RecomputePlanner& planner, const RecomputeChoice& choice)
      : planner_(planner), choice_(choice), tensors_(planner.roots_.size()) {
    for (size_t slot = 0; slot < 2 * tensors_; ++slot) {
      owner_.push_back(slot < tensors_ ? static_cast<size_t>(planner.roots_[slot]) : slot);
    }
    last_.assign(2 * tensors_, -1);
    narrow_last_.assign(2 * tensors_, -1);
  }

  int64_t run() {
    const std::vector<Step> steps = planner_.schedule(choice_);
    for (size_t i = 0; i < steps.size(); ++i) {
      load(steps[i]);
      for (size_t slot : inputs_) last_[owner_[slot]] = static_cast<int>(i);
      for (size_t slot : outputs_) last_[owner_[slot]] = static_cast<int>(i);
    }
    leave_in_16_bits(steps);
    for (TensorId result : planner_.graph_.results()) {
      last_[owner_[static_cast<size_t>(result)]] = std::numeric_limits<int>::max();
    }
    for (size_t i = 0; i < steps.size(); ++i) execute(steps[i], static_cast<int>(i));
    return peak_;
  }

 private:
  // What the backward pass reads of a stored tensor is its copy in 16 bits; of what a clone made,
  // if it is read late.
  void leave_in_16_bits(const std::vector<Step>& steps) {
    std::vector<int> last_near(2 * tensors_, -1);
    for (size_t i = 0; i < steps.size(); ++i) {
      load(steps[i]);
      const auto now = static_cast<int>(i);
      const bool again = is_again(steps[i]);
      for (size_t slot : inputs_) {
        int& last = last_near[root_of(slot)];
        const bool near = slot >= tensors_ && now <= last + static_cast<int>(kFarReader);
        if (!again || near) last = now;
      }
      for (size_t slot : outputs_) last_near[root_of(slot)] = now;
    }
    for (size_t root = 0; root < 2 * tensors_; ++root) {
      if (!planner_.is_stored_[root % tensors_] || last_near[root] < 0) continue;
      if (last_[root] <= last_near[root]) continue;
      narrow_last_[root] = last_[root];
      last_[root] = last_near[root];
    }
  }

  bool is_again(const Step& step) const {
    return step.candidate >= 0 || planner_.graph_.op(step.op).phase != Phase::forward;
  }

  size_t root_of(size_t slot) const {
    return slot < tensors_ ? static_cast<size_t>(planner_.roots_[slot]) : slot;
  }

  // Whether the operator reads the slot's copy in 16 bits as it is.
  bool reads_narrow(const OperatorDefinition& definition, size_t input) const {
    const std::vector<int>& direct = definition.stored_inputs;
    return std::find(direct.begin(), direct.end(), static_cast<int>(input)) != direct.end();
  }

  // Accounts for the copies in 16 bits; returns what widening takes while the step runs.
  int64_t read_narrow(const Step& step, const OperatorDefinition& definition) const {
    if (!is_again(step)) return 0;
    int64_t widened = 0;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const size_t slot = inputs_[i];
      const size_t root = root_of(slot);
      if (narrow_last_[root] < 0 || last_[root] >= 0) continue;
      if (!reads_narrow(definition, i)) widened += bytes(slot);
    }
    return widened;
  }

  void release_narrow(int now) {
    for (size_t slot : inputs_) {
      if (narrow_last_[root_of(slot)] != now) continue;
      in_use_ -= bytes(root_of(slot)) / 2;
      narrow_last_[root_of(slot)] = -1;
    }
  }

  int64_t bytes(size_t slot) const { return planner_.bytes_[slot % tensors_]; }

  void load(const Step& step) {
    inputs_.clear();
    outputs_.clear();
    const Operator& op = planner_.graph_.op(step.op);
    const bool clone = step.candidate >= 0;
    const auto& inputs =
        clone ? planner_.candidates_[static_cast<size_t>(step.candidate)].inputs : op.inputs;
    const bool again = clone || op.phase != Phase::forward;
    for (TensorId input : inputs) {
      const auto t = static_cast<size_t>(input);
      inputs_.push_back(again && choice_[t] ? tensors_ + t : t);
    }
    if (clone) {
      outputs_.push_back(tensors_ + static_cast<size_t>(op.outputs[0]));
    } else {
      for (TensorId output : op.outputs) outputs_.push_back(static_cast<size_t>(output));
    }
  }

  void execute(const Step& step, int now) {
    load(step);
    const OperatorDefinition* definition = planner_.definitions_[static_cast<size_t>(step.op)];
    if (step.candidate >= 0 && !definition->recompute_type.empty()) {
      definition = &definition_of(definition->recompute_type);
    }
    for (size_t slot : outputs_) {
      if (root_of(slot) == slot && narrow_last_[slot] >= 0) {
        in_use_ += bytes(slot) / 2;
      }
    }
    for (size_t i = 0; i < outputs_.size(); ++i) {
      if (owner_[outputs_[i]] != outputs_[i] || take_over(*definition, i, now)) continue;
      in_use_ += bytes(outputs_[i]);
    }
    peak_ = std::max(peak_, in_use_ + read_narrow(step, *definition));
    release_narrow(now);
    for (size_t slot : inputs_) release(find(slot), now);
    for (size_t slot : outputs_) release(find(slot), now);
  }

  bool take_over(const OperatorDefinition& definition, size_t output, int now) {
    for (const auto& pair : definition.in_place) {
      const auto input = static_cast<size_t>(pair.input);
      if (static_cast<size_t>(pair.output) != output || input >= inputs_.size()) continue;
      const size_t from = find(inputs_[input]);
      const size_t to = outputs_[output];
      if (last_[from] != now || bytes(from) == 0 || bytes(from) != bytes(to)) continue;
      const auto readers = std::count_if(inputs_.begin(), inputs_.end(),
                                         [&](size_t slot) { return find(slot) == from; });
      if (readers != 1) continue;
      owner_[to] = from;
      last_[from] = last_[to];
      return true;
    }
    return false;
  }

  size_t find(size_t slot) const {
    while (owner_[slot] != slot) slot = owner_[slot];
    return slot;
  }

  void release(size_t owner, int now) {
    if (last_[owner] != now) return;
    in_use_ -= bytes(owner);
    last_[owner] = -1;
  }

  const RecomputePlanner& planner_;
  const RecomputeChoice& choice_;
  const size_t tensors_;
  std::vector<size_t> owner_;     // by slot: in whose memory it lies, perhaps over several links
  std::vector<int> last_;         // by slot that owns memory: the last step that needs it
  std::vector<int> narrow_last_;  // by slot that owns memory: of its copy in 16 bits
  std::vector<size_t> inputs_;
  std::vector<size_t> outputs_;
  int64_t in_use_ = 0;
  int64_t peak_ = 0;
};

int64_t RecomputePlanner::peak(const RecomputeChoice& choice) const {
  return Sweep(*this, choice).run();
}

}  // namespace millrace
