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
#include "kernels/support/update_rules.h"
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

// Weights, states and gradient in the order in which an update has them.
struct Update {
  UpdateRule rule;
  UpdateInputs inputs;
  Range own;

  Update(const KernelRequest& request, RuleKind kind)
      : rule(update_rule_of(kind, request.op.attributes)),
        inputs(UpdateInputs::of(request)),
        own(range_of(request)) {}

  size_t states() const { return state_count(rule.kind); }
  const float* gradient(const KernelArguments& a) const { return a.input<float>(1 + states()); }

  // AdamW counts the updates of each parameter, behind its gradient.
  RuleStep step(const KernelArguments& a) const {
    int64_t before = 0;
    if (rule.kind == RuleKind::adamw) {
      float& updates = *a.input<float>(2 + states());
      before = static_cast<int64_t>(updates);
      updates += 1;
    }
    return rule.at(a.step->learning_rate, before, inputs.scale(a));
  }

  void apply(const KernelArguments& a, const RuleStep& step) const {
    auto* weights = a.input<float>(0) + own.begin;
    const auto* gradients = gradient(a) + own.begin;
    parallel_ranges(own.count, kElementwiseGrain, [&](int, int64_t begin, int64_t end) {
      float* parts[2] = {};
      for (size_t i = 0; i < states(); ++i) parts[i] = a.input<float>(1 + i) + begin;
      step.apply(weights + begin, parts, gradients + begin, end - begin);
    });
  }
};

template <RuleKind kind>
std::unique_ptr<Kernel> make_update(const KernelRequest& request, std::string* refusal) {
  if (!is_uniform(request, refusal)) return nullptr;
  return make_function_kernel([update = Update(request, kind)](const KernelArguments& a) {
    if (!update.inputs.skips(a)) update.apply(a, update.step(a));
  });
}

std::unique_ptr<Kernel> make_lars(const KernelRequest& request, std::string* refusal) {
  if (!is_uniform(request, refusal)) return nullptr;
  const int64_t count = request.inputs[0].physical_elements();
  const Attributes& attributes = request.op.attributes;
  const double trust = attributes.number("trust");
  const bool is_slice = attributes.has("squares_at");
  const int64_t place = is_slice ? attributes.integer("squares_at") : 0;
  const auto run = [=, update = Update(request, RuleKind::lars)](const KernelArguments& a) {
    if (update.inputs.skips(a)) return;
    RuleStep step = update.step(a);
    auto* sums = reinterpret_cast<double*>(a.workspace);
    const auto squares = [&](const float* values, int64_t which) {
      if (is_slice) return double{a.input<float>(3)[place + which]};
      return sum_squares(values, count, sums);
    };
    const double weight_norm = std::sqrt(squares(a.input<float>(0), 0));
    const double gradient_norm = std::sqrt(squares(update.gradient(a), 1)) * step.scale;
    if (weight_norm != 0 && gradient_norm != 0) {
      const double bound =
          gradient_norm + update.rule.weight_decay * weight_norm + update.rule.epsilon;
      step.rate = static_cast<float>(step.rate * (trust * weight_norm / bound));
    }
    update.apply(a, step);
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
      {"sgd_update",
       {{"vector", make_update<RuleKind::momentum>}, {"reference", reference_sgd}},
       follow},
      {"sgd_plain_update",
       {{"vector", make_update<RuleKind::plain>}, {"reference", reference_sgd_plain}},
       follow},
      {"adamw_update",
       {{"vector", make_update<RuleKind::adamw>}, {"reference", reference_adamw}},
       follow},
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
