#include "kernels/head/row_update.h"

#include <cmath>

#include "kernels/head/centre_block.h"
#include "kernels/support/vectorize.h"

namespace millrace::kernels {
namespace {

MILLRACE_VECTORIZED float row_dot(const float* a, const float* b, int64_t count) {
  FloatLanes sums[2] = {};
  int64_t i = 0;
  for (; i + 2 * kFloatLanes <= count; i += 2 * kFloatLanes) {
    for (int64_t j = 0; j < 2; ++j) {
      FloatLanes first;
      FloatLanes second;
      load_lanes(a + i + j * kFloatLanes, first);
      load_lanes(b + i + j * kFloatLanes, second);
      sums[j] += first * second;
    }
  }
  double sum = sum_of_lanes(sums[0] + sums[1]);
  for (; i < count; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return static_cast<float>(sum);
}

MILLRACE_VECTORIZED void take_off(const float* __restrict w, float along, float* __restrict g,
                                  int64_t count) {
  for (int64_t i = 0; i < count; ++i) g[i] -= along * w[i];
}

// A row and its states in float32: themselves, or copies that go back when `store` is called.
class OpenRow {
 public:
  OpenRow(const RowUpdate& update, const RowUpdate::Row& row, float* scratch)
      : update_(update), row_(row) {
    for (size_t i = 0; i <= update.state_count(); ++i) {
      values_[i] = reinterpret_cast<float*>(stored(i));
      if (update.storage == graph::DataType::f32) continue;
      values_[i] = scratch + static_cast<int64_t>(i) * update.dimension;
      load_row(update.storage, stored(i), update.dimension, values_[i]);
    }
  }

  float* centre() const { return values_[0]; }
  float* const* states() const { return values_ + 1; }

  void store(uint64_t seed, int64_t step) const {
    if (update_.storage == graph::DataType::f32) return;
    for (size_t i = 0; i <= update_.state_count(); ++i) {
      store_row(update_.storage, values_[i], update_.dimension,
                rounding_key(seed, step, row_.number, static_cast<uint32_t>(i)), stored(i));
    }
  }

 private:
  std::byte* stored(size_t i) const { return i == 0 ? row_.centre : row_.states[i - 1]; }

  const RowUpdate& update_;
  const RowUpdate::Row& row_;
  float* values_[3] = {};
};

}  // namespace

RowUpdate RowUpdate::at_step(const StepState& state) const {
  RowUpdate update = *this;
  update.seed = state.seed;
  update.step = state.step;
  update.now = rule.at(rate_of(state), state.updates(), 1);
  return update;
}

void project(float* gradient, const float* centre, float norm, int64_t dimension) {
  if (norm <= kLeastNorm) return;
  const float along = row_dot(gradient, centre, dimension) / norm / norm;
  take_off(centre, along, gradient, dimension);
}

void RowUpdate::apply(float* gradient, float norm, const Row& row, const LateRows* late,
                      float* scratch) const {
  const OpenRow open(*this, row, scratch);
  if (late != nullptr) late->catch_up(row.place, open.centre(), open.states());
  project(gradient, open.centre(), norm, dimension);
  now.apply(open.centre(), open.states(), gradient, dimension);
  open.store(seed, step);
}

void RowUpdate::settle(const Row& row, const LateRows& late, float* scratch) const {
  constexpr int64_t kSettled = int64_t{1} << 40;  // no step has these random bits
  const OpenRow open(*this, row, scratch);
  late.catch_up(row.place, open.centre(), open.states());
  open.store(0, kSettled + late.clock().now());
}

RowUpdate row_update_of(std::string_view type, const graph::Attributes& attributes,
                        graph::DataType storage, int64_t dimension) {
  graph::RuleKind kind = graph::RuleKind::plain;
  if (type.ends_with("_momentum")) kind = graph::RuleKind::momentum;
  if (type.ends_with("_adamw")) kind = graph::RuleKind::adamw;
  RowUpdate update;
  update.rule = update_rule_of(kind, attributes);
  if (attributes.has("rate_factor")) update.rate_factor = attributes.number("rate_factor");
  update.storage = storage;
  update.dimension = dimension;
  return update;
}

}  // namespace millrace::kernels
