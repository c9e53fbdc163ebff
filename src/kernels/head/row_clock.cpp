#include "kernels/head/row_clock.h"

#include <algorithm>

namespace millrace::kernels {
namespace {

graph::RuleKind kind_with_states(int64_t states) {
  if (states == 0) return graph::RuleKind::plain;
  return states == 1 ? graph::RuleKind::momentum : graph::RuleKind::adamw;
}

}  // namespace

float RowClock::rate(int64_t update) const { return rates_[kRates + update % graph::kHeadHistory]; }

void RowClock::record(float rate, int64_t updates_before) const {
  const int64_t update = now();
  if (update == 0) rates_[1] = static_cast<float>(updates_before);
  rates_[kRates + update % graph::kHeadHistory] = rate;
  rates_[0] = static_cast<float>(update + 1);
}

int64_t RowClock::missed(int64_t row) const {
  return std::min(now() - current_[row], graph::kHeadHistory);
}

std::optional<LateRows> LateRows::of(const KernelRequest& request, size_t centres, size_t between) {
  const graph::Attributes& attributes = request.op.attributes;
  if (!attributes.flag("lazy")) return {};
  LateRows rows(update_rule_of(kind_with_states(attributes.integer("states")), attributes),
                request.inputs[centres].type.dtype, request.inputs[centres].type.shape.at(1));
  rows.states_input_ = centres + 1 + between;
  return rows;
}

LateRows LateRows::begin(const KernelArguments& a, std::byte* workspace) const {
  const size_t behind = states_input_ + state_count(rule_.kind);
  LateRows rows = begin(RowClock(a.input<float>(behind + 1), a.input<int32_t>(behind)), workspace);
  for (size_t i = 0; i < state_count(rule_.kind); ++i) {
    rows.states_[i] = {a.inputs[states_input_ + i], storage_, dimension_};
  }
  return rows;
}

LateRows LateRows::begin(const RowClock& clock, std::byte* workspace) const {
  LateRows rows = *this;
  rows.clock_ = clock;
  auto* pauses = reinterpret_cast<Pause*>(workspace);
  pauses[0] = {};
  const int64_t now = rows.clock_.now();
  for (int64_t i = 0; i < std::min(now, graph::kHeadHistory); ++i) {
    const int64_t update = now - 1 - i;
    pauses[i + 1] =
        rule_.preceded(pauses[i], rows.clock_.rate(update), rows.clock_.updates_before(update));
  }
  rows.pauses_ = pauses;
  return rows;
}

void LateRows::catch_up(int64_t row, float* centre, float* scratch) const {
  if (clock_.missed(row) == 0) return;
  float* states[2] = {scratch, scratch + dimension_};
  for (size_t i = 0; i < state_count(rule_.kind); ++i) {
    load_row(storage_, states_[i].row(row), dimension_, states[i]);
  }
  catch_up(row, centre, states);
}

void LateRows::catch_up(int64_t row, float* centre, float* const* states) const {
  const int64_t missed = clock_.missed(row);
  if (missed > 0) rule_.apply(pauses_[missed], centre, states, dimension_);
}

void LateRows::prefetch(int64_t row) const {
  if (clock_.missed(row) == 0) return;
  for (size_t i = 0; i < state_count(rule_.kind); ++i) {
    prefetch_row(states_[i].row(row), states_[i].row_bytes());
  }
}

}  // namespace millrace::kernels
