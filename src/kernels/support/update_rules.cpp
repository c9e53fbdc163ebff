#include "kernels/support/update_rules.h"

#include <cmath>
#include <stdexcept>

#include "kernels/support/vectorize.h"

namespace millrace::kernels {
namespace {

MILLRACE_VECTORIZED void step_plain(const RuleStep s, float* w, const float* g, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) w[i] -= s.rate * (g[i] * s.scale + s.decay * w[i]);
}

MILLRACE_VECTORIZED void step_momentum(const RuleStep s, float* w, float* m, const float* g,
                                       int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    const float gradient = g[i] * s.scale + s.decay * w[i];
    m[i] = s.momentum * m[i] + gradient;
    w[i] -= s.rate * m[i];
  }
}

MILLRACE_VECTORIZED void step_nesterov(const RuleStep s, float* w, float* m, const float* g,
                                       int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    const float gradient = g[i] * s.scale + s.decay * w[i];
    m[i] = s.momentum * m[i] + gradient;
    w[i] -= s.rate * (gradient + s.momentum * m[i]);
  }
}

MILLRACE_VECTORIZED void step_adamw(const RuleStep s, float* w, float* first, float* second,
                                    const float* g, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    const float gradient = g[i] * s.scale;
    first[i] = s.momentum * first[i] + s.share1 * gradient;
    second[i] = s.beta2 * second[i] + s.share2 * gradient * gradient;
    const float step = first[i] / (__builtin_sqrtf(second[i]) * s.deviation + s.epsilon);
    w[i] = w[i] * s.decay - s.rate * step;
  }
}

MILLRACE_VECTORIZED void step_lars(const RuleStep s, float* w, float* m, const float* g,
                                   int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    const float gradient = g[i] * s.scale + s.decay * w[i];
    m[i] = s.momentum * m[i] + s.rate * gradient;
    w[i] -= m[i];
  }
}

MILLRACE_VECTORIZED void step_rmsprop(const RuleStep s, float* w, float* second, float* m,
                                      const float* g, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    const float gradient = g[i] * s.scale + s.decay * w[i];
    second[i] = s.beta2 * second[i] + s.share2 * gradient * gradient;
    m[i] = s.momentum * m[i] + gradient / (__builtin_sqrtf(second[i]) + s.epsilon);
    w[i] -= s.rate * m[i];
  }
}

MILLRACE_VECTORIZED void step_rmsprop_plain(const RuleStep s, float* w, float* second,
                                            const float* g, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    const float gradient = g[i] * s.scale + s.decay * w[i];
    second[i] = s.beta2 * second[i] + s.share2 * gradient * gradient;
    w[i] -= s.rate * gradient / (__builtin_sqrtf(second[i]) + s.epsilon);
  }
}

// The step of a weight whose moments are up to date.
inline float lamb_step(const RuleStep& s, float w, float first, float second) {
  return first / (__builtin_sqrtf(second) * s.deviation + s.epsilon) + s.decay * w;
}

MILLRACE_VECTORIZED double begin_lamb(const RuleStep s, const float* w, float* first, float* second,
                                      const float* g, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    const float gradient = g[i] * s.scale;
    first[i] = s.momentum * first[i] + s.share1 * gradient;
    second[i] = s.beta2 * second[i] + s.share2 * gradient * gradient;
  }
  double squares = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double step = lamb_step(s, w[i], first[i], second[i]);
    squares += step * step;
  }
  return squares;
}

MILLRACE_VECTORIZED void finish_lamb(const RuleStep s, float* w, const float* first,
                                     const float* second, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) w[i] -= s.rate * lamb_step(s, w[i], first[i], second[i]);
}

MILLRACE_VECTORIZED void shrink_weights(float factor, float* w, int64_t count) {
  for (int64_t i = 0; i < count; ++i) w[i] *= factor;
}

struct LinearPause {
  float weight, pull, feed, first;
};

MILLRACE_VECTORIZED void wait_linearly(const LinearPause p, float* __restrict w,
                                       float* __restrict m, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const float before = w[i];
    w[i] = p.weight * before + p.pull * m[i];
    m[i] = p.feed * before + p.first * m[i];
  }
}

struct AdamPause {
  float weight, pull, first, second, epsilon;
};

MILLRACE_VECTORIZED void wait_adamw(const AdamPause p, float* __restrict w, float* __restrict m,
                                    float* __restrict v, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    w[i] = p.weight * w[i] + p.pull * (m[i] / (__builtin_sqrtf(v[i]) + p.epsilon));
    m[i] *= p.first;
    v[i] *= p.second;
  }
}

}  // namespace

size_t state_count(graph::RuleKind kind) {
  if (kind == graph::RuleKind::plain) return 0;
  return kind == graph::RuleKind::adamw || kind == graph::RuleKind::lamb ? 2 : 1;
}

void RuleStep::apply(float* weights, float* const* states, const float* gradient,
                     int64_t count) const {
  switch (kind) {
    case graph::RuleKind::plain:
      return step_plain(*this, weights, gradient, count);
    case graph::RuleKind::momentum:
      return step_momentum(*this, weights, states[0], gradient, count);
    case graph::RuleKind::nesterov:
      return step_nesterov(*this, weights, states[0], gradient, count);
    case graph::RuleKind::adamw:
      return step_adamw(*this, weights, states[0], states[1], gradient, count);
    case graph::RuleKind::lars:
      return step_lars(*this, weights, states[0], gradient, count);
    case graph::RuleKind::rmsprop:
      return step_rmsprop(*this, weights, states[0], states[1], gradient, count);
    case graph::RuleKind::rmsprop_plain:
      return step_rmsprop_plain(*this, weights, states[0], gradient, count);
    case graph::RuleKind::lamb:
      return finish_lamb(*this, weights, states[0], states[1], count);
  }
}

double RuleStep::begin(const float* weights, float* const* states, const float* gradient,
                       int64_t count) const {
  if (kind == graph::RuleKind::lamb) {
    return begin_lamb(*this, weights, states[0], states[1], gradient, count);
  }
  throw std::logic_error("a step that is not fitted to its norm has no beginning");
}

RuleStep UpdateRule::at(double rate, int64_t updates, float scale) const {
  RuleStep step;
  step.kind = kind;
  step.rate = static_cast<float>(rate);
  step.decay = static_cast<float>(weight_decay);
  step.momentum = static_cast<float>(momentum);
  step.scale = scale;
  step.beta2 = static_cast<float>(beta2);
  step.share2 = static_cast<float>(1 - beta2);
  step.epsilon = static_cast<float>(epsilon);
  if (kind != graph::RuleKind::adamw && kind != graph::RuleKind::lamb) return step;
  const auto t = static_cast<double>(updates + 1);
  const double correction = 1 - std::pow(beta1, t);
  double deviation = 1 / std::sqrt(1 - std::pow(beta2, t));
  double offset = epsilon;
  if (kind == graph::RuleKind::lamb) {  // which needs the step itself
    deviation *= correction;
    offset *= correction;
  } else {
    step.rate = static_cast<float>(rate / correction);
    step.decay = static_cast<float>(1 - rate * weight_decay);
  }
  step.momentum = static_cast<float>(beta1);
  step.share1 = static_cast<float>(1 - beta1);
  step.epsilon = static_cast<float>(offset);
  step.deviation = static_cast<float>(deviation);
  return step;
}

// An update without gradient is linear in weight and momentum. AdamW's step is
// rate * b1 / c1 * m / (sqrt(b2 / c2) * sqrt(v) + epsilon), and later ones of a pause see m and v
// smaller by b1 and b2; the sum over a pause has the form pull * m / (sqrt(v) + epsilon') up to the
// square of how much sqrt(b2 / c2) varies in it.
Pause UpdateRule::preceded(const Pause& pause, double rate, int64_t updates) const {
  Pause longer = pause;
  if (kind == graph::RuleKind::adamw) {
    const auto t = static_cast<double>(updates + 1);
    const double step = rate * beta1 / (1 - std::pow(beta1, t));
    const double deviation = std::sqrt(beta2 / (1 - std::pow(beta2, t)));
    longer.pull = pause.pull * beta1 / std::sqrt(beta2) - pause.weight * step / deviation;
    longer.spread = pause.spread * beta1 / beta2 - pause.weight * step / (deviation * deviation);
    longer.weight = pause.weight * (1 - rate * weight_decay);
    longer.first = pause.first * beta1;
    longer.second = pause.second * beta2;
    return longer;
  }
  const double ahead = kind == graph::RuleKind::nesterov ? 1 + momentum : 1;
  const double kept = kind == graph::RuleKind::nesterov ? momentum * momentum : momentum;
  const double from_weight = 1 - rate * weight_decay * ahead;
  const double from_momentum = -rate * kept;
  longer.weight = pause.weight * from_weight + pause.pull * weight_decay;
  longer.pull = pause.weight * from_momentum + pause.pull * momentum;
  longer.feed = pause.feed * from_weight + pause.first * weight_decay;
  longer.first = pause.feed * from_momentum + pause.first * momentum;
  return longer;
}

void UpdateRule::apply(const Pause& pause, float* weights, float* const* states,
                       int64_t count) const {
  const auto weight = static_cast<float>(pause.weight);
  const auto pull = static_cast<float>(pause.pull);
  const auto first = static_cast<float>(pause.first);
  switch (state_count(kind)) {
    case 0:
      return shrink_weights(weight, weights, count);
    case 1:
      return wait_linearly({weight, pull, static_cast<float>(pause.feed), first}, weights,
                           states[0], count);
    default:
      const double ratio = pause.pull == 0 ? 1 : pause.spread / pause.pull;
      return wait_adamw({weight, pull, first, static_cast<float>(pause.second),
                         static_cast<float>(epsilon * ratio)},
                        weights, states[0], states[1], count);
  }
}

UpdateRule update_rule_of(graph::RuleKind kind, const graph::Attributes& attributes) {
  const auto number = [&](std::string_view name) {
    return attributes.has(name) ? attributes.number(name) : 0.0;
  };
  if (kind == graph::RuleKind::momentum && attributes.flag("nesterov"))
    kind = graph::RuleKind::nesterov;
  UpdateRule rule = {kind,
                     number("momentum"),
                     number("weight_decay"),
                     number("beta1"),
                     number("beta2"),
                     number("epsilon")};
  if (kind == graph::RuleKind::plain) rule.momentum = 0;
  return rule;
}

}  // namespace millrace::kernels
