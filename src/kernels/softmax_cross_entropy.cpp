#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "base/parallel.h"
#include "kernels/support/function_kernel.h"
#include "kernels/support/request_checks.h"
#include "kernels/support/softmax_rows.h"
#include "kernels/support/vectorize.h"

namespace millrace::kernels::softmax_cross_entropy {
namespace {

struct Geometry {
  int64_t rows;
  int64_t classes;
  double smoothing;
  double samples;               // of which the loss is the mean
  std::vector<double> weights;  // of classes; empty: all are 1
  double weight_share;          // their mean
  bool mixed;                   // labels have seconds

  double weight(int64_t label) const {
    return weights.empty() ? 1 : weights[static_cast<size_t>(label)];
  }
  int64_t grain() const { return kElementwiseGrain / 4 / std::max<int64_t>(classes, 1); }
  bool contains(int64_t label) const { return label >= 0 && label < classes; }
};

Geometry geometry_of(const KernelRequest& request, size_t rows_by_classes) {
  const graph::Shape& shape = request.inputs.at(rows_by_classes).type.shape;
  const graph::Attributes& attributes = request.op.attributes;
  const int64_t samples = attributes.has("samples") ? attributes.integer("samples") : shape.at(0);
  Geometry g = {shape.at(0),
                shape.at(1),
                attributes.number("label_smoothing"),
                static_cast<double>(samples),
                {},
                1,
                request.inputs.size() > rows_by_classes + 2};
  if (attributes.has("class_weights")) {
    g.weights = attributes.numbers("class_weights");
    g.weight_share =
        std::accumulate(g.weights.begin(), g.weights.end(), 0.0) / static_cast<double>(g.classes);
  }
  return g;
}

// What a sample is to be, before smoothing: `share` of the first class, the rest of the second.
struct Target {
  int64_t first;
  int64_t second;
  double share;

  bool is_in(const Geometry& g) const { return g.contains(first) && g.contains(second); }
  double of(int64_t c) const { return (c == first ? share : 0) + (c == second ? 1 - share : 0); }
};

// `labels` is the input that has them.
Target target_of(const Geometry& g, const KernelArguments& arguments, size_t labels, int64_t n) {
  constexpr double kUnit = 0x1.0p-24;
  const int64_t label = arguments.input<int32_t>(labels)[n];
  if (!g.mixed) return {label, label, 1};
  const auto* mixing = arguments.input<int32_t>(labels + 1) + 2 * n;
  return {label, mixing[0], mixing[1] * kUnit};
}

// The sum of weight * (x - maximum) over all classes, divided by their number.
double weighted_mean(const Geometry& g, const float* x, const RowSums& sums) {
  if (g.weights.empty()) return sums.shifted / static_cast<double>(g.classes);
  double sum = 0;
  for (int64_t c = 0; c < g.classes; ++c) sum += g.weight(c) * (x[c] - sums.maximum);
  return sum / static_cast<double>(g.classes);
}

std::unique_ptr<Kernel> make_forward(const KernelRequest& request, std::string* refusal) {
  if (!is_plain(request, refusal)) return nullptr;
  const Geometry g = geometry_of(request, 0);
  const auto run = [g](const KernelArguments& arguments) {
    const auto* logits = arguments.input<float>(0);
    auto* probabilities = arguments.output<float>(1);
    auto* losses = reinterpret_cast<double*>(arguments.workspace);
    parallel_for(g.rows, g.grain(), [&](int64_t n) {
      const float* x = logits + n * g.classes;
      float* p = probabilities + n * g.classes;
      const Target target = target_of(g, arguments, 1, n);
      losses[n] = std::numeric_limits<double>::quiet_NaN();
      RowSums sums;
      exponentiate_row(x, g.classes, p, &sums);
      if (target.is_in(g)) {
        const double logarithm = std::log(sums.exponentials);
        const auto loss_of = [&](int64_t label) {
          return g.weight(label) * (logarithm - (static_cast<double>(x[label]) - sums.maximum));
        };
        losses[n] = (1 - g.smoothing) * loss_of(target.first);
        if (g.mixed) {
          losses[n] = (1 - g.smoothing) * (target.share * loss_of(target.first) +
                                           (1 - target.share) * loss_of(target.second));
        }
        if (g.smoothing != 0) {
          losses[n] += g.smoothing * (g.weight_share * logarithm - weighted_mean(g, x, sums));
        }
      }
      scale_row(p, g.classes, static_cast<float>(1 / sums.exponentials));
    });
    double loss = 0;
    for (int64_t n = 0; n < g.rows; ++n) loss += losses[n];
    arguments.output<float>(0)[0] = static_cast<float>(loss / g.samples);
  };
  return make_function_kernel(run, static_cast<uint64_t>(g.rows) * sizeof(double));
}

// With weights of classes or second labels. `row` may be the probabilities themselves.
void general_gradient(const Geometry& g, const float* probabilities, const Target& target,
                      float factor, float* row) {
  const double own = target.share * g.weight(target.first);
  const double other = (1 - target.share) * g.weight(target.second);
  const double all = (1 - g.smoothing) * (own + other) + g.smoothing * g.weight_share;
  const double share = g.smoothing / static_cast<double>(g.classes);
  for (int64_t c = 0; c < g.classes; ++c) {
    const double wanted = ((1 - g.smoothing) * target.of(c) + share) * g.weight(c);
    row[c] = static_cast<float>((all * probabilities[c] - wanted) * factor);
  }
}

std::unique_ptr<Kernel> make_backward(const KernelRequest& request, std::string* refusal) {
  if (!is_plain(request, refusal)) return nullptr;
  const Geometry g = geometry_of(request, 1);
  return make_function_kernel([g](const KernelArguments& arguments) {
    const float factor = arguments.input<float>(0)[0] / static_cast<float>(g.samples);
    const auto* probabilities = arguments.input<float>(1);
    auto* gradients = arguments.output<float>(0);
    const auto share = static_cast<float>(g.smoothing / static_cast<double>(g.classes));
    parallel_for(g.rows, g.grain(), [&](int64_t n) {
      float* row = gradients + n * g.classes;
      const Target wanted = target_of(g, arguments, 2, n);
      const int64_t label = wanted.first;
      if (!wanted.is_in(g)) {
        std::fill(row, row + g.classes, std::numeric_limits<float>::quiet_NaN());
        return;
      }
      if (g.mixed || !g.weights.empty()) {
        general_gradient(g, probabilities + n * g.classes, wanted, factor, row);
        return;
      }
      const float target = probabilities[n * g.classes + label];
      shift_row(probabilities + n * g.classes, g.classes, share, factor, row);
      row[label] = (target - share - static_cast<float>(1 - g.smoothing)) * factor;
    });
  });
}

std::unique_ptr<Kernel> reference_forward(const KernelRequest& request, std::string* refusal) {
  if (!is_plain(request, refusal)) return nullptr;
  return make_function_kernel([g = geometry_of(request, 0)](const KernelArguments& arguments) {
    double loss = 0;
    for (int64_t n = 0; n < g.rows; ++n) {
      const float* x = arguments.input<float>(0) + n * g.classes;
      const Target wanted = target_of(g, arguments, 1, n);
      const double maximum = *std::max_element(x, x + g.classes);
      double sum = 0;
      for (int64_t c = 0; c < g.classes; ++c) sum += std::exp(x[c] - maximum);
      for (int64_t c = 0; c < g.classes; ++c) {
        const double log_probability = x[c] - maximum - std::log(sum);
        const double target =
            (1 - g.smoothing) * wanted.of(c) + g.smoothing / static_cast<double>(g.classes);
        loss -= target * g.weight(c) * log_probability;
        arguments.output<float>(1)[n * g.classes + c] =
            static_cast<float>(std::exp(log_probability));
      }
      if (!wanted.is_in(g)) loss = std::numeric_limits<double>::quiet_NaN();
    }
    arguments.output<float>(0)[0] = static_cast<float>(loss / g.samples);
  });
}

std::unique_ptr<Kernel> reference_backward(const KernelRequest& request, std::string* refusal) {
  if (!is_plain(request, refusal)) return nullptr;
  return make_function_kernel([g = geometry_of(request, 1)](const KernelArguments& arguments) {
    const double factor = arguments.input<float>(0)[0] / g.samples;
    for (int64_t n = 0; n < g.rows; ++n) {
      const Target wanted = target_of(g, arguments, 2, n);
      const auto weighted_target = [&](int64_t c) {
        const double own = (1 - g.smoothing) * wanted.of(c);
        return (own + g.smoothing / static_cast<double>(g.classes)) * g.weight(c);
      };
      double targets = 0;
      for (int64_t c = 0; c < g.classes; ++c) targets += weighted_target(c);
      for (int64_t c = 0; c < g.classes; ++c) {
        const double probability = arguments.input<float>(1)[n * g.classes + c];
        const double gradient = (targets * probability - weighted_target(c)) * factor;
        arguments.output<float>(0)[n * g.classes + c] =
            wanted.is_in(g) ? static_cast<float>(gradient)
                            : std::numeric_limits<float>::quiet_NaN();
      }
    }
  });
}

}  // namespace

std::vector<KernelFamily> kernels() {
  return {
      {"softmax_cross_entropy", {{"vector", make_forward}, {"reference", reference_forward}}},
      {"softmax_cross_entropy_backward",
       {{"vector", make_backward}, {"reference", reference_backward}}},
  };
}

}  // namespace millrace::kernels::softmax_cross_entropy
