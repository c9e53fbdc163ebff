#include <algorithm>
#include <cmath>
#include <limits>

#include "base/parallel.h"
#include "base/parts.h"
#include "kernels/support/function_kernel.h"
#include "kernels/support/request_checks.h"
#include "kernels/support/softmax_rows.h"
#include "kernels/support/vectorize.h"

namespace millrace::kernels::split_softmax {
namespace {

constexpr int64_t kStatistics = 4;
enum Statistic : int64_t { kMaximum, kExponentials, kTarget, kShifted };

// The member's classes among all.
struct Classes {
  int64_t rows;
  int64_t own;
  int64_t begin;
  int64_t all;
  int members;
  double samples;  // of which the loss is the mean

  Classes(const KernelRequest& request, size_t logits)
      : rows(request.inputs.at(logits).type.shape.at(0)),
        own(request.inputs[logits].type.shape.at(1)),
        begin(request.op.attributes.integer("class_begin")),
        all(request.op.attributes.integer("classes")),
        members(static_cast<int>(request.op.attributes.integer("members"))),
        samples(static_cast<double>(request.op.attributes.has("samples")
                                        ? request.op.attributes.integer("samples")
                                        : rows)) {}

  int64_t grain() const { return kElementwiseGrain / 4 / std::max<int64_t>(own, 1); }
  bool exists(int64_t label) const { return label >= 0 && label < all; }
  bool is_own(int64_t label) const { return label >= begin && label < begin + own; }

  const float* of_member(const float* gathered, int member, int64_t row) const {
    return gathered + (member * rows + row) * kStatistics;
  }
  float target(const float* gathered, int64_t row) const {
    float sum = 0;
    for (int m = 0; m < members; ++m) sum += of_member(gathered, m, row)[kTarget];
    return sum;
  }
};

std::unique_ptr<Kernel> make_statistics(const KernelRequest& request, std::string* refusal) {
  if (!is_plain(request, refusal)) return nullptr;
  return make_function_kernel([g = Classes(request, 0)](const KernelArguments& arguments) {
    const auto* logits = arguments.input<float>(0);
    const auto* labels = arguments.input<int32_t>(1);
    auto* statistics = arguments.output<float>(0);
    parallel_for(g.rows, g.grain(), [=](int64_t n) {
      const float* x = logits + n * g.own;
      float* out = statistics + n * kStatistics;
      RowSums sums;
      sum_row(x, g.own, &sums);
      out[kMaximum] = sums.maximum;
      out[kExponentials] = static_cast<float>(sums.exponentials);
      out[kTarget] = g.is_own(labels[n]) ? x[labels[n] - g.begin] : 0;
      out[kShifted] = static_cast<float>(sums.shifted);
    });
  });
}

// One sample's loss, and what makes probabilities of its logits.
struct SampleLoss {
  double loss;
  float maximum;
  float scale;
};

SampleLoss loss_of(const Classes& g, const float* gathered, int64_t row, double smoothing) {
  float maximum = g.of_member(gathered, 0, row)[kMaximum];
  for (int m = 1; m < g.members; ++m) {
    maximum = std::max(maximum, g.of_member(gathered, m, row)[kMaximum]);
  }
  double exponentials = 0;
  double shifted = 0;
  for (int m = 0; m < g.members; ++m) {
    const float* own = g.of_member(gathered, m, row);
    const double below = static_cast<double>(own[kMaximum]) - maximum;
    exponentials += own[kExponentials] * std::exp(below);
    shifted += own[kShifted] + below * static_cast<double>(part_size(g.all, m, g.members));
  }
  const double target = static_cast<double>(g.target(gathered, row)) - maximum;
  double loss = std::log(exponentials) - (1 - smoothing) * target;
  if (smoothing != 0) loss -= smoothing * shifted / static_cast<double>(g.all);
  return {loss, maximum, static_cast<float>(1 / exponentials)};
}

std::unique_ptr<Kernel> make_loss(const KernelRequest& request, std::string* refusal) {
  if (!is_plain(request, refusal)) return nullptr;
  const double smoothing = request.op.attributes.number("label_smoothing");
  return make_function_kernel([g = Classes(request, 0), smoothing](const KernelArguments& a) {
    double loss = 0;
    for (int64_t n = 0; n < g.rows; ++n) {
      const SampleLoss sample = loss_of(g, a.input<float>(2), n, smoothing);
      const bool exists = g.exists(a.input<int32_t>(1)[n]);
      loss += exists ? sample.loss : std::numeric_limits<double>::quiet_NaN();
      a.output<float>(1)[2 * n] = sample.maximum;
      a.output<float>(1)[2 * n + 1] = sample.scale;
    }
    a.output<float>(0)[0] = static_cast<float>(loss / (g.samples * g.members));
  });
}

std::unique_ptr<Kernel> make_backward(const KernelRequest& request, std::string* refusal) {
  if (!is_plain(request, refusal)) return nullptr;
  const double smoothing = request.op.attributes.number("label_smoothing");
  return make_function_kernel([g = Classes(request, 1), smoothing](const KernelArguments& a) {
    const float factor = a.input<float>(0)[0] / static_cast<float>(g.samples);
    const auto* logits = a.input<float>(1);
    const auto* labels = a.input<int32_t>(2);
    const auto* normalisers = a.input<float>(3);
    auto* gradients = a.output<float>(0);
    const auto share = static_cast<float>(smoothing / static_cast<double>(g.all));
    parallel_for(g.rows, g.grain(), [=](int64_t n) {
      float* row = gradients + n * g.own;
      const int64_t label = labels[n];
      if (!g.exists(label)) {
        std::fill(row, row + g.own, std::numeric_limits<float>::quiet_NaN());
        return;
      }
      probabilities_of_row(logits + n * g.own, g.own, normalisers[2 * n], normalisers[2 * n + 1],
                           row);
      const float target = g.is_own(label) ? row[label - g.begin] : 0;
      shift_row(row, g.own, share, factor, row);
      if (!g.is_own(label)) return;
      row[label - g.begin] = (target - share - static_cast<float>(1 - smoothing)) * factor;
    });
  });
}

// How many of the member's logits come before the target's; the label decides among equal ones.
std::unique_ptr<Kernel> make_rank(const KernelRequest& request, std::string* refusal) {
  if (!is_plain(request, refusal)) return nullptr;
  return make_function_kernel([g = Classes(request, 0)](const KernelArguments& arguments) {
    const auto* logits = arguments.input<float>(0);
    const auto* labels = arguments.input<int32_t>(1);
    const auto* gathered = arguments.input<float>(2);
    auto* ranks = arguments.output<float>(0);
    parallel_for(g.rows, g.grain(), [=](int64_t n) {
      const float target = g.target(gathered, n);
      const int64_t ties = std::clamp<int64_t>(labels[n] - g.begin, 0, g.own);
      const bool known = g.exists(labels[n]) && target == target;
      const int64_t rank = rank_in_row(logits + n * g.own, static_cast<int32_t>(g.own),
                                       static_cast<int32_t>(ties), target);
      ranks[n] = static_cast<float>(known ? rank : g.all);
    });
  });
}

std::unique_ptr<Kernel> make_hits(const KernelRequest& request, std::string* refusal) {
  if (!is_plain(request, refusal)) return nullptr;
  const int64_t rows = request.inputs[0].elements();
  const auto k = static_cast<float>(request.op.attributes.integer("k"));
  return make_function_kernel([rows, k](const KernelArguments& arguments) {
    const auto* ranks = arguments.input<float>(0);
    const auto hits = std::count_if(ranks, ranks + rows, [k](float rank) { return rank < k; });
    arguments.output<float>(0)[0] = static_cast<float>(hits);
  });
}

}  // namespace

std::vector<KernelFamily> kernels() {
  return {{"softmax_statistics", {{"rows", make_statistics}}},
          {"split_softmax_loss", {{"rows", make_loss}}},
          {"split_softmax_backward", {{"rows", make_backward}}},
          {"split_rank", {{"rows", make_rank}}},
          {"rank_hits", {{"rows", make_hits}}}};
}

}  // namespace millrace::kernels::split_softmax
