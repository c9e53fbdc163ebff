#include <algorithm>
#include <cmath>

#include "base/parallel.h"
#include "base/parts.h"
#include "kernels/reference/reference.h"
#include "kernels/support/function_kernel.h"
#include "kernels/support/layout_rules.h"
#include "kernels/support/norms.h"
#include "kernels/support/request_checks.h"
#include "kernels/support/update_inputs.h"
#include "kernels/support/vectorize.h"

namespace millrace::optimizer {
namespace {

// The elements in storage order that this device updates: all, or its part where the state is
// shared out. Weights and gradient are whole, the state has the part alone.
struct Range {
  int64_t begin;
  int64_t count;
};

Range range_of(const KernelRequest& request) {
  const int64_t whole = request.inputs[0].physical_elements();
  if (!request.op.attributes.has("parts")) return {0, whole};
  const auto part = static_cast<int>(request.op.attributes.integer("part"));
  const auto parts = static_cast<int>(request.op.attributes.integer("parts"));
  return {part_begin(whole, part, parts), part_size(whole, part, parts)};
}

struct Sgd {
  float momentum;
  float weight_decay;
  bool nesterov;
  UpdateInputs inputs;
  float learning_rate = 0;
  float scale = 1;
};

MILLRACE_VECTORIZED void sgd_plain(const Sgd s, float* w, const float* g, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    w[i] -= s.learning_rate * (g[i] * s.scale + s.weight_decay * w[i]);
  }
}

MILLRACE_VECTORIZED void sgd_momentum(const Sgd s, float* w, float* m, const float* g,
                                      int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    const float gradient = g[i] * s.scale + s.weight_decay * w[i];
    m[i] = s.momentum * m[i] + gradient;
    w[i] -= s.learning_rate * m[i];
  }
}

MILLRACE_VECTORIZED void sgd_nesterov(const Sgd s, float* w, float* m, const float* g,
                                      int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    const float gradient = g[i] * s.scale + s.weight_decay * w[i];
    m[i] = s.momentum * m[i] + gradient;
    w[i] -= s.learning_rate * (gradient + s.momentum * m[i]);
  }
}

Sgd sgd_of(const KernelRequest& request) {
  const Attributes& attributes = request.op.attributes;
  return {attributes.has("momentum") ? static_cast<float>(attributes.number("momentum")) : 0.0f,
          static_cast<float>(attributes.number("weight_decay")), attributes.flag("nesterov"),
          UpdateInputs::of(request)};
}

Sgd at_step(Sgd s, const KernelArguments& arguments) {
  s.learning_rate = arguments.step->learning_rate;
  s.scale = s.inputs.scale(arguments);
  return s;
}

std::unique_ptr<Kernel> make_sgd_plain(const KernelRequest& request, std::string* refusal) {
  if (!is_uniform(request, refusal)) return nullptr;
  const Range own = range_of(request);
  return make_function_kernel([own, fixed = sgd_of(request)](const KernelArguments& a) {
    if (fixed.inputs.skips(a)) return;
    auto* w = a.input<float>(0) + own.begin;
    const auto* g = a.input<float>(1) + own.begin;
    const Sgd s = at_step(fixed, a);
    parallel_ranges(own.count, kElementwiseGrain, [=](int, int64_t begin, int64_t end) {
      sgd_plain(s, w + begin, g + begin, end - begin);
    });
  });
}

std::unique_ptr<Kernel> make_sgd(const KernelRequest& request, std::string* refusal) {
  if (!is_uniform(request, refusal)) return nullptr;
  const Range own = range_of(request);
  return make_function_kernel([own, fixed = sgd_of(request)](const KernelArguments& a) {
    if (fixed.inputs.skips(a)) return;
    auto* w = a.input<float>(0) + own.begin;
    auto* m = a.input<float>(1);
    const auto* g = a.input<float>(2) + own.begin;
    const Sgd s = at_step(fixed, a);
    const auto range = s.nesterov ? sgd_nesterov : sgd_momentum;
    parallel_ranges(own.count, kElementwiseGrain, [=](int, int64_t begin, int64_t end) {
      range(s, w + begin, m + begin, g + begin, end - begin);
    });
  });
}

struct AdamW {
  float beta1, beta2, epsilon;
  float share1, share2;  // 1 - beta, which would lose digits if it were computed in float
  float decay;           // what the weight is multiplied with
  float rate;            // learning rate over the first moment's bias correction
  float deviation;       // 1 / sqrt of the second moment's bias correction
  float scale;
};

MILLRACE_VECTORIZED void adamw(const AdamW s, float* w, float* first, float* second, const float* g,
                               int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    const float gradient = g[i] * s.scale;
    first[i] = s.beta1 * first[i] + s.share1 * gradient;
    second[i] = s.beta2 * second[i] + s.share2 * gradient * gradient;
    const float step = first[i] / (__builtin_sqrtf(second[i]) * s.deviation + s.epsilon);
    w[i] = w[i] * s.decay - s.rate * step;
  }
}

std::unique_ptr<Kernel> make_adamw(const KernelRequest& request, std::string* refusal) {
  if (!is_uniform(request, refusal)) return nullptr;
  const Range own = range_of(request);
  const Attributes& attributes = request.op.attributes;
  const double beta1 = attributes.number("beta1");
  const double beta2 = attributes.number("beta2");
  const double epsilon = attributes.number("epsilon");
  const double weight_decay = attributes.number("weight_decay");
  const UpdateInputs inputs = UpdateInputs::of(request);
  return make_function_kernel([=](const KernelArguments& a) {
    if (inputs.skips(a)) return;
    float& updates = a.input<float>(4)[0];
    updates += 1;
    const double t = updates;
    const double rate = a.step->learning_rate;
    const AdamW s = {static_cast<float>(beta1),
                     static_cast<float>(beta2),
                     static_cast<float>(epsilon),
                     static_cast<float>(1 - beta1),
                     static_cast<float>(1 - beta2),
                     static_cast<float>(1 - rate * weight_decay),
                     static_cast<float>(rate / (1 - std::pow(beta1, t))),
                     static_cast<float>(1 / std::sqrt(1 - std::pow(beta2, t))),
                     inputs.scale(a)};
    auto* w = a.input<float>(0) + own.begin;
    auto* first = a.input<float>(1);
    auto* second = a.input<float>(2);
    const auto* g = a.input<float>(3) + own.begin;
    parallel_ranges(own.count, kElementwiseGrain, [=](int, int64_t begin, int64_t end) {
      adamw(s, w + begin, first + begin, second + begin, g + begin, end - begin);
    });
  });
}

// m = momentum * m + rate * (g * scale + decay * w); w -= m
MILLRACE_VECTORIZED void lars(const Sgd s, float* w, float* m, const float* g, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    const float gradient = g[i] * s.scale + s.weight_decay * w[i];
    m[i] = s.momentum * m[i] + s.learning_rate * gradient;
    w[i] -= m[i];
  }
}

std::unique_ptr<Kernel> make_lars(const KernelRequest& request, std::string* refusal) {
  if (!is_uniform(request, refusal)) return nullptr;
  const int64_t count = request.inputs[0].physical_elements();
  const Range own = range_of(request);
  const Attributes& attributes = request.op.attributes;
  const double trust = attributes.number("trust");
  const double epsilon = attributes.number("epsilon");
  const bool is_slice = attributes.has("squares_at");
  const int64_t place = is_slice ? attributes.integer("squares_at") : 0;
  const auto run = [=, fixed = sgd_of(request)](const KernelArguments& a) {
    if (fixed.inputs.skips(a)) return;
    auto* w = a.input<float>(0);
    auto* m = a.input<float>(1);
    const auto* g = a.input<float>(2);
    auto* sums = reinterpret_cast<double*>(a.workspace);
    Sgd s = at_step(fixed, a);
    const auto squares = [&](const float* values, int64_t which) {
      if (is_slice) return double{a.input<float>(3)[place + which]};
      return sum_squares(values, count, sums);
    };
    const double weight_norm = std::sqrt(squares(w, 0));
    const double gradient_norm = std::sqrt(squares(g, 1)) * s.scale;
    if (weight_norm != 0 && gradient_norm != 0) {
      const double bound = gradient_norm + s.weight_decay * weight_norm + epsilon;
      s.learning_rate = static_cast<float>(s.learning_rate * (trust * weight_norm / bound));
    }
    w += own.begin;
    g += own.begin;
    parallel_ranges(own.count, kElementwiseGrain, [=](int, int64_t begin, int64_t end) {
      lars(s, w + begin, m + begin, g + begin, end - begin);
    });
  };
  return make_function_kernel(run, static_cast<uint64_t>(norm_chunks(count)) * sizeof(double));
}

// One sum for each input, or one of all.
template <bool of_each>
std::unique_ptr<Kernel> make_squares(const KernelRequest& request, std::string*) {
  std::vector<int64_t> counts;
  int64_t largest = 0;
  for (const TensorSpec& input : request.inputs) {
    counts.push_back(input.physical_elements());
    largest = std::max(largest, counts.back());
  }
  const auto run = [counts](const KernelArguments& a) {
    double all = 0;
    for (size_t i = 0; i < counts.size(); ++i) {
      const double sum =
          sum_squares(a.input<float>(i), counts[i], reinterpret_cast<double*>(a.workspace));
      if (of_each) a.output<float>(0)[i] = static_cast<float>(sum);
      all += sum;
    }
    if (!of_each) a.output<float>(0)[0] = static_cast<float>(all);
  };
  return make_function_kernel(run, static_cast<uint64_t>(norm_chunks(largest)) * sizeof(double));
}

std::unique_ptr<Kernel> make_keep_squares(const KernelRequest&, std::string*) {
  return make_function_kernel(
      [](const KernelArguments& a) { a.input<float>(0)[0] = a.input<float>(1)[0]; });
}

std::unique_ptr<Kernel> make_clip_scale(const KernelRequest& request, std::string*) {
  return make_function_kernel([bound = request.op.attributes.number("max_norm")](
                                  const KernelArguments& a) {
    const double norm = std::sqrt(static_cast<double>(a.input<float>(0)[0])) / a.step->loss_scale;
    a.output<float>(0)[0] = static_cast<float>(std::min(1.0, bound / (norm + 1e-6)));
  });
}

LayoutWish follow(const KernelRequest& request) { return follow_input(request, 0); }

// Padding is zero, so the sum is the same in every layout: no input need be reordered.
LayoutWish keep(const KernelRequest& request) {
  LayoutWish wish;
  for (const TensorSpec& input : request.inputs) wish.inputs.push_back(input.layout);
  wish.outputs.resize(request.outputs.size());
  return wish;
}

}  // namespace

std::vector<KernelFamily> kernels() {
  return {
      {"sgd_update", {{"vector", make_sgd}, {"reference", reference_sgd}}, follow},
      {"sgd_plain_update",
       {{"vector", make_sgd_plain}, {"reference", reference_sgd_plain}},
       follow},
      {"adamw_update", {{"vector", make_adamw}, {"reference", reference_adamw}}, follow},
      {"lars_update", {{"vector", make_lars}, {"reference", reference_lars}}, follow},
      {"sum_of_squares",
       {{"vector", make_squares<false>}, {"reference", reference_sum_of_squares}},
       keep},
      {"squares_of_each",
       {{"vector", make_squares<true>}, {"reference", reference_squares_of_each}},
       keep},
      {"keep_squares", {{"scalar", make_keep_squares}}},
      {"clip_scale", {{"scalar", make_clip_scale}, {"reference", reference_clip_scale}}},
  };
}

}  // namespace millrace::optimizer
