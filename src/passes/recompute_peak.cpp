// The memory of a step under a choice of what to recompute.
#include <algorithm>
#include <limits>

#include "passes/autodiff.h"
#include "passes/recompute_plan.h"
#include "passes/storage.h"

namespace millrace::passes {
namespace {

using Step = RecomputePlanner::Step;
constexpr int kToTheEnd = std::numeric_limits<int>::max();

struct Interval {
  int first;
  int last;
  int64_t bytes;
  bool result;
};

// By step: forward 0, backward 1, gradients of weights apart 2, updates apart 3. Clones belong to
// what they stand before.
std::vector<int> phases_of(const RecomputePlanner& planner, const std::vector<Step>& steps) {
  const StepMemory& memory = planner.memory();
  std::vector<int> phases(steps.size(), 0);
  if (!memory.phased) return phases;
  const graph::Graph& graph = planner.graph();
  std::vector<bool> apart(static_cast<size_t>(graph.operator_count()), false);
  if (memory.split_backward) {
    for (graph::OperatorId id : weight_gradient_operators(graph))
      apart[static_cast<size_t>(id)] = true;
  }
  bool at_end = true;  // only gradients of weights and updates so far
  int phase = 0;
  for (size_t i = steps.size(); i-- > 0;) {
    if (!steps[i].again) {
      const graph::Phase own = graph.op(steps[i].op).phase;
      const bool update = own == graph::Phase::update && memory.updates_apart;
      at_end = at_end && (update || apart[static_cast<size_t>(steps[i].op)]);
      phase = own == graph::Phase::forward ? 0 : update ? 3 : at_end ? 2 : 1;
    }
    phases[i] = phase;
  }
  return phases;
}

int64_t most_at_once(const std::vector<Interval>& intervals, size_t steps) {
  std::vector<int64_t> change(steps + 1, 0);
  for (const Interval& interval : intervals) {
    change[static_cast<size_t>(interval.first)] += interval.bytes;
    change[static_cast<size_t>(interval.last) + 1] -= interval.bytes;
  }
  int64_t in_use = 0;
  int64_t peak = 0;
  for (const int64_t bytes : change) peak = std::max(peak, in_use += bytes);
  return peak;
}

// Walks a schedule and notes from when to when memory is in use. Slots below the number of tensors
// are tensors of the graph, those above are what clones make of them.
class Sweep {
 public:
  Sweep(const RecomputePlanner& planner, const RecomputeChoice& choice)
      : planner_(planner),
        facts_(planner.facts()),
        choice_(choice),
        tensors_(facts_.roots.size()),
        steps_(planner.schedule(choice)) {
    for (size_t slot = 0; slot < 2 * tensors_; ++slot) owner_.push_back(root_of(slot));
    first_.assign(2 * tensors_, -1);
    last_.assign(2 * tensors_, -1);
    narrow_first_.assign(2 * tensors_, -1);
    narrow_last_.assign(2 * tensors_, -1);
    is_result_.assign(2 * tensors_, false);
  }

  int64_t run() {
    for (size_t i = 0; i < steps_.size(); ++i) {
      load(steps_[i]);
      for (size_t slot : inputs_) last_[owner_[slot]] = static_cast<int>(i);
      for (size_t slot : outputs_) last_[owner_[slot]] = static_cast<int>(i);
    }
    leave_in_16_bits();
    for (graph::TensorId result : planner_.graph().results()) {
      const size_t owner = owner_[static_cast<size_t>(result)];
      is_result_[owner] = true;
      if (!planner_.memory().phased) last_[owner] = kToTheEnd;
    }
    for (size_t i = 0; i < steps_.size(); ++i) execute(steps_[i], static_cast<int>(i));
    for (size_t slot = 0; slot < 2 * tensors_; ++slot) {
      if (first_[slot] >= 0 && last_[slot] == kToTheEnd) note(slot, last_step());
    }
    return peak();
  }

 private:
  int last_step() const { return static_cast<int>(steps_.size()) - 1; }

  int64_t peak() {
    if (!planner_.memory().phased) return most_at_once(intervals_, steps_.size());
    const std::vector<int> phases = phases_of(planner_, steps_);
    std::vector<Interval> saved;
    std::vector<Interval> scratch;
    for (Interval interval : intervals_) {
      const int phase = phases[static_cast<size_t>(interval.first)];
      if (interval.result) {
        const auto next = std::upper_bound(phases.begin(), phases.end(), phase == 0 ? 0 : 1);
        const auto position = static_cast<int>(next - phases.begin());
        interval.last = std::max(interval.last, std::min(position, last_step()));
      }
      const bool crosses = phase != phases[static_cast<size_t>(interval.last)];
      (interval.result || crosses ? saved : scratch).push_back(interval);
    }
    return planner_.memory().slots * most_at_once(saved, steps_.size()) +
           most_at_once(scratch, steps_.size());
  }

  // What the backward pass reads of a stored tensor is its copy in 16 bits; of what a clone made,
  // if it is read late.
  void leave_in_16_bits() {
    std::vector<int> last_near(2 * tensors_, -1);
    for (size_t i = 0; i < steps_.size(); ++i) {
      load(steps_[i]);
      const auto now = static_cast<int>(i);
      const bool again = is_again(steps_[i]);
      for (size_t slot : inputs_) {
        int& last = last_near[root_of(slot)];
        const bool near = slot >= tensors_ && now <= last + static_cast<int>(kFarReader);
        if (!again || near) last = now;
      }
      for (size_t slot : outputs_) last_near[root_of(slot)] = now;
    }
    for (size_t root = 0; root < 2 * tensors_; ++root) {
      if (!facts_.is_stored[root % tensors_] || last_near[root] < 0) continue;
      if (last_[root] <= last_near[root]) continue;
      narrow_last_[root] = last_[root];
      last_[root] = last_near[root];
    }
  }

  bool is_again(const Step& step) const {
    return step.again || planner_.graph().op(step.op).phase != graph::Phase::forward;
  }

  size_t root_of(size_t slot) const {
    const size_t base = slot < tensors_ ? 0 : tensors_;
    return base + static_cast<size_t>(facts_.roots[slot - base]);
  }

  // Whether the operator reads the slot's copy in 16 bits as it is.
  static bool reads_narrow(const graph::OperatorDefinition& definition, size_t input) {
    const std::vector<int>& direct = definition.stored_inputs;
    return std::find(direct.begin(), direct.end(), static_cast<int>(input)) != direct.end();
  }

  // What widening copies in 16 bits takes while the step runs.
  int64_t widened(const Step& step, const graph::OperatorDefinition& definition) const {
    if (!is_again(step)) return 0;
    int64_t bytes = 0;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const size_t root = root_of(inputs_[i]);
      if (narrow_last_[root] < 0 || last_[root] >= 0) continue;
      if (!reads_narrow(definition, i)) bytes += bytes_of(inputs_[i]);
    }
    return bytes;
  }

  void release_narrow(int now) {
    for (size_t slot : inputs_) {
      const size_t root = root_of(slot);
      if (narrow_last_[root] != now) continue;
      intervals_.push_back({narrow_first_[root], now, bytes_of(root) / 2, is_result_[root]});
      narrow_last_[root] = -1;
    }
  }

  int64_t bytes_of(size_t slot) const { return facts_.bytes[slot % tensors_]; }

  void load(const Step& step) {
    inputs_.clear();
    outputs_.clear();
    const graph::Operator& op = planner_.graph().op(step.op);
    const bool again = is_again(step);
    for (graph::TensorId input : step.again ? planner_.clone_inputs(step.op) : op.inputs) {
      const auto t = static_cast<size_t>(input);
      inputs_.push_back(again && choice_[t] ? tensors_ + t : t);
    }
    const size_t base = step.again ? tensors_ : 0;
    for (graph::TensorId output : step.again ? planner_.clone_outputs(step.op) : op.outputs) {
      outputs_.push_back(base + static_cast<size_t>(output));
    }
  }

  void execute(const Step& step, int now) {
    load(step);
    const graph::OperatorDefinition& definition =
        step.again ? planner_.clone_definition(step.op)
                   : *facts_.definitions[static_cast<size_t>(step.op)];
    for (size_t slot : outputs_) {
      if (root_of(slot) == slot && narrow_last_[slot] >= 0) narrow_first_[slot] = now;
    }
    for (size_t i = 0; i < outputs_.size(); ++i) {
      if (owner_[outputs_[i]] != outputs_[i] || take_over(definition, i, now)) continue;
      first_[outputs_[i]] = now;
    }
    const int64_t wide = widened(step, definition);
    if (wide > 0) intervals_.push_back({now, now, wide, false});
    release_narrow(now);
    for (size_t slot : inputs_) release(find(slot), now);
    for (size_t slot : outputs_) release(find(slot), now);
  }

  bool take_over(const graph::OperatorDefinition& definition, size_t output, int now) {
    for (const auto& pair : definition.in_place) {
      const auto input = static_cast<size_t>(pair.input);
      if (static_cast<size_t>(pair.output) != output || input >= inputs_.size()) continue;
      const size_t from = find(inputs_[input]);
      const size_t to = outputs_[output];
      if (last_[from] != now || is_result_[from]) continue;
      if (bytes_of(from) == 0 || bytes_of(from) != bytes_of(to)) continue;
      const auto readers = std::count_if(inputs_.begin(), inputs_.end(),
                                         [&](size_t slot) { return find(slot) == from; });
      if (readers != 1) continue;
      owner_[to] = from;
      last_[from] = last_[to];
      is_result_[from] = is_result_[to];
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
    if (first_[owner] >= 0) note(owner, now);
    last_[owner] = -1;
  }

  void note(size_t owner, int last) {
    intervals_.push_back({first_[owner], last, bytes_of(owner), is_result_[owner]});
  }

  const RecomputePlanner& planner_;
  const RecomputeFacts& facts_;
  const RecomputeChoice& choice_;
  const size_t tensors_;
  const std::vector<Step> steps_;
  std::vector<size_t> owner_;  // by slot: in whose memory it lies, perhaps over several links
  std::vector<int> first_;     // by slot that owns memory: the step that makes it
  std::vector<int> last_;      // by slot that owns memory: the last step that needs it
  std::vector<int> narrow_first_;
  std::vector<int> narrow_last_;  // by slot that owns memory: of its copy in 16 bits
  std::vector<bool> is_result_;   // by slot that owns memory
  std::vector<size_t> inputs_;
  std::vector<size_t> outputs_;
  std::vector<Interval> intervals_;
};

}  // namespace

int64_t RecomputePlanner::peak(const RecomputeChoice& choice) const {
  return Sweep(*this, choice).run();
}

}  // namespace millrace::passes
