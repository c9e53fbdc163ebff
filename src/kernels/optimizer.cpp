#include <algorithm>
#include <array>
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

namespace millrace::kernels::optimizer {
namespace {

// The elements in storage order that this device updates: all, or its part where the state is
// shared out. Weights and gradient are whole, the state has the part alone.
struct Range {
  int64_t begin;
  int64_t count;
  int64_t whole;
};

Range range_of(const KernelRequest& request) {
  const int64_t whole = request.inputs[0].physical_elements();
  if (!request.op.attributes.has("parts")) return {0, whole, whole};
  const auto part = static_cast<int>(request.op.attributes.integer("part"));
  const auto parts = static_cast<int>(request.op.attributes.integer("parts"));
  return {part_begin(whole, part, parts), part_size(whole, part, parts), whole};
}

// The row whose NAME_update, or whose NAME_moments, the operator is.
const graph::OptimizerDefinition& row_of(const KernelRequest& request) {
  const std::string_view type = request.op.type;
  return graph::optimizer_named(type.substr(0, type.rfind('_')));
}

// Weights, states and gradient, a count of updates, and the sums of squares of the parts of a
// tensor, in the order in which an update has them.
class Update {
 public:
  explicit Update(const KernelRequest& request)
      : row_(row_of(request)),
        rule_(update_rule_of(row_.kind, request.op.attributes)),
        inputs_(UpdateInputs::of(request)),
        own_(range_of(request)) {
    const graph::Attributes& attributes = request.op.attributes;
    if (attributes.has("squares_at")) place_ = attributes.integer("squares_at");
    if (row_.trust == graph::Trust::gradient) trust_ = attributes.number("trust");
    gradient_ = 1 + row_.states.size();
    counter_ = gradient_ + 1;
    squares_ = counter_ + (row_.counts_updates ? 1 : 0);
  }

  uint64_t workspace_bytes() const {
    if (row_.trust == graph::Trust::none) return 0;
    const uint64_t sums = row_.trust == graph::Trust::step ? 2 : 1;
    return sums * static_cast<uint64_t>(norm_chunks(own_.whole)) * sizeof(double);
  }

  void run(const KernelArguments& a) const {
    if (inputs_.skips(a)) return;
    const bool has_begun = row_.trust == graph::Trust::step && place_ >= 0;
    RuleStep now = step(a, has_begun ? 0 : 1);
    if (row_.trust == graph::Trust::gradient) fit_to_gradient(a, now);
    if (row_.trust == graph::Trust::step) {
      const Squares squares = has_begun ? given_squares(a) : begin(a, now);
      if (squares.weights > 0 && squares.other > 0) {
        now.rate *= static_cast<float>(std::sqrt(squares.weights / squares.other));
      }
    }
    for_ranges([&](int64_t begin, int64_t end) {
      now.apply(a.input<float>(0) + own_.begin + begin, states(a, begin).data(),
                a.input<float>(gradient_) + own_.begin + begin, end - begin);
    });
  }

  // The first half of a step whose squares are to be added up.
  void run_moments(const KernelArguments& a) const {
    if (inputs_.skips(a)) return;
    const Squares own = begin(a, step(a, 1));
    float* squares = a.input<float>(squares_) + place_;
    squares[0] = static_cast<float>(own.weights);
    squares[1] = static_cast<float>(own.other);
  }

 private:
  struct Squares {
    double weights = 0;
    double other = 0;
  };

  // Counts the update where the rule does and `counts` says so.
  RuleStep step(const KernelArguments& a, int counts) const {
    int64_t before = 0;
    if (row_.counts_updates) {
      float& updates = *a.input<float>(counter_);
      updates += static_cast<float>(counts);
      before = static_cast<int64_t>(updates) - 1;
    }
    return rule_.at(inputs_.rate(a), before, inputs_.scale(a));
  }

  std::array<float*, 2> states(const KernelArguments& a, int64_t begin) const {
    std::array<float*, 2> parts = {};
    for (size_t i = 0; i < row_.states.size(); ++i) parts[i] = a.input<float>(1 + i) + begin;
    return parts;
  }

  template <typename Body>
  void for_ranges(const Body& body) const {
    parallel_ranges(own_.count, kElementwiseGrain,
                    [&](int, int64_t begin, int64_t end) { body(begin, end); });
  }

  Squares given_squares(const KernelArguments& a) const {
    const float* sums = a.input<float>(squares_) + place_;
    return {double{sums[0]}, double{sums[1]}};
  }

  void fit_to_gradient(const KernelArguments& a, RuleStep& step) const {
    auto* sums = reinterpret_cast<double*>(a.workspace);
    const auto squares = [&](size_t input) {
      return sum_squares(a.input<float>(input), own_.whole, sums);
    };
    const Squares norms = place_ >= 0 ? given_squares(a) : Squares{squares(0), squares(gradient_)};
    const double weights = std::sqrt(norms.weights);
    const double gradient = std::sqrt(norms.other) * step.scale;
    if (weights == 0 || gradient == 0) return;
    const double bound = gradient + rule_.weight_decay * weights + rule_.epsilon;
    step.rate = static_cast<float>(step.rate * (trust_ * weights / bound));
  }

  // In chunks, so that the sums do not depend on the number of threads.
  Squares begin(const KernelArguments& a, const RuleStep& step) const {
    auto* sums = reinterpret_cast<double*>(a.workspace);
    const int64_t chunks = norm_chunks(own_.count);
    const float* weights = a.input<float>(0) + own_.begin;
    const float* gradients = a.input<float>(gradient_) + own_.begin;
    parallel_for(chunks, kElementwiseGrain / kNormChunk, [&](int64_t chunk) {
      const int64_t first = chunk * kNormChunk;
      sums[chunk] = step.begin(weights + first, states(a, first).data(), gradients + first,
                               std::min(kNormChunk, own_.count - first));
    });
    double all = 0;
    for (int64_t chunk = 0; chunk < chunks; ++chunk) all += sums[chunk];
    return {sum_squares(weights, own_.count, sums + chunks), all};
  }

  const graph::OptimizerDefinition& row_;
  const UpdateRule rule_;
  const UpdateInputs inputs_;
  const Range own_;
  int64_t place_ = -1;  // of this tensor among the squares; -1: there are none
  double trust_ = 0;
  size_t gradient_ = 0;  // among the inputs, as the next two
  size_t counter_ = 0;
  size_t squares_ = 0;
};

std::unique_ptr<Kernel> make_update(const KernelRequest& request, std::string* refusal) {
  if (!is_uniform(request, refusal)) return nullptr;
  const Update update(request);
  return make_function_kernel([update](const KernelArguments& a) { update.run(a); },
                              update.workspace_bytes());
}

std::unique_ptr<Kernel> make_moments(const KernelRequest& request, std::string* refusal) {
  if (!is_uniform(request, refusal)) return nullptr;
  const Update update(request);
  return make_function_kernel([update](const KernelArguments& a) { update.run_moments(a); },
                              update.workspace_bytes());
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
  std::vector<KernelFamily> families = {
      {"sum_of_squares",
       {{"vector", make_squares<false>}, {"reference", reference_sum_of_squares}},
       keep},
      {"squares_of_each",
       {{"vector", make_squares<true>}, {"reference", reference_squares_of_each}},
       keep},
      {"keep_squares", {{"scalar", make_keep_squares}}},
      {"clip_scale", {{"scalar", make_clip_scale}, {"reference", reference_clip_scale}}},
  };
  for (const graph::OptimizerDefinition& row : graph::optimizers()) {
    families.push_back(
        {row.update_type, {{"vector", make_update}, {"reference", reference_update}}, follow});
    if (row.trust == graph::Trust::step)
      families.push_back({row.moments_type, {{"vector", make_moments}}, follow});
  }
  return families;
}

}  // namespace millrace::kernels::optimizer
