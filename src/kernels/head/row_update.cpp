#include "kernels/head/row_update.h"

#include <cmath>

#include "kernels/support/vectorize.h"

namespace millrace {
namespace {

double number_or_zero(const Attributes& attributes, std::string_view name) {
  return attributes.has(name) ? attributes.number(name) : 0.0;
}

MILLRACE_VECTORIZED void step_plain(const float* __restrict g, float factor, float rate,
                                    float* __restrict w, int64_t count) {
  for (int64_t i = 0; i < count; ++i) w[i] -= rate * (g[i] + factor * w[i]);
}

MILLRACE_VECTORIZED void step_momentum(const float* __restrict g, float factor, float rate,
                                       float keep, float* __restrict w, float* __restrict m,
                                       int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    m[i] = keep * m[i] + (g[i] + factor * w[i]);
    w[i] -= rate * m[i];
  }
}

MILLRACE_VECTORIZED void step_nesterov(const float* __restrict g, float factor, float rate,
                                       float keep, float* __restrict w, float* __restrict m,
                                       int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const float gradient = g[i] + factor * w[i];
    m[i] = keep * m[i] + gradient;
    w[i] -= rate * (gradient + keep * m[i]);
  }
}

MILLRACE_VECTORIZED void step_adamw(const float* __restrict g, float along, const RowUpdate& s,
                                    float* __restrict w, float* __restrict first,
                                    float* __restrict second, int64_t count) {
  const auto beta1 = static_cast<float>(s.beta1);
  const auto beta2 = static_cast<float>(s.beta2);
  const auto kept = static_cast<float>(1 - static_cast<double>(s.learning_rate) * s.decay);
  const float deviation = s.deviation;
  const float epsilon = s.epsilon;
  const float rate = s.rate;
  for (int64_t i = 0; i < count; ++i) {
    const float gradient = g[i] - along * w[i];
    first[i] = beta1 * first[i] + (1.0f - beta1) * gradient;
    second[i] = beta2 * second[i] + (1.0f - beta2) * gradient * gradient;
    w[i] = w[i] * kept - rate * (first[i] / (__builtin_sqrtf(second[i]) * deviation + epsilon));
  }
}

}  // namespace

RowUpdate RowUpdate::at_step(const StepState& state) const {
  RowUpdate now = *this;
  now.seed = state.seed;
  now.step = state.step;
  now.learning_rate = state.learning_rate;
  if (optimizer == RowOptimizer::adamw) {
    const auto t = static_cast<double>(state.updates() + 1);
    now.rate = static_cast<float>(state.learning_rate / (1 - std::pow(beta1, t)));
    now.deviation = static_cast<float>(1 / std::sqrt(1 - std::pow(beta2, t)));
  }
  return now;
}

void RowUpdate::apply(const float* gradient, float along, int64_t number, std::byte* centre,
                      std::byte* const* states, float* scratch) const {
  std::byte* stored[3] = {centre};
  float* values[3];
  for (size_t i = 0; i < state_count(); ++i) stored[i + 1] = states[i];
  for (size_t i = 0; i <= state_count(); ++i) {
    values[i] = reinterpret_cast<float*>(stored[i]);
    if (storage == DataType::f32) continue;
    values[i] = scratch + static_cast<int64_t>(i) * dimension;
    load_row(storage, stored[i], dimension, values[i]);
  }
  const float factor = static_cast<float>(decay) - along;
  const auto with_momentum = nesterov ? step_nesterov : step_momentum;
  switch (optimizer) {
    case RowOptimizer::plain:
      step_plain(gradient, factor, learning_rate, values[0], dimension);
      break;
    case RowOptimizer::momentum:
      with_momentum(gradient, factor, learning_rate, momentum, values[0], values[1], dimension);
      break;
    case RowOptimizer::adamw:
      step_adamw(gradient, along, *this, values[0], values[1], values[2], dimension);
      break;
  }
  if (storage == DataType::f32) return;
  for (size_t i = 0; i <= state_count(); ++i) {
    store_row(storage, values[i], dimension,
              rounding_key(seed, step, number, static_cast<uint32_t>(i)), stored[i]);
  }
}

RowUpdate row_update_of(std::string_view type, const Attributes& attributes, DataType storage,
                        int64_t dimension) {
  RowUpdate update;
  if (type.ends_with("_momentum")) update.optimizer = RowOptimizer::momentum;
  if (type.ends_with("_adamw")) update.optimizer = RowOptimizer::adamw;
  update.storage = storage;
  update.dimension = dimension;
  update.beta1 = number_or_zero(attributes, "beta1");
  update.beta2 = number_or_zero(attributes, "beta2");
  update.decay = number_or_zero(attributes, "weight_decay");
  update.epsilon = static_cast<float>(number_or_zero(attributes, "epsilon"));
  update.momentum = static_cast<float>(number_or_zero(attributes, "momentum"));
  update.nesterov = attributes.flag("nesterov");
  return update;
}

}  // namespace millrace
