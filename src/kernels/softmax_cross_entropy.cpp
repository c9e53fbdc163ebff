#include <algorithm>
#include <cmath>
#include <limits>

#include "base/parallel.h"
#include "kernels/support/function_kernel.h"
#include "kernels/support/request_checks.h"
#include "kernels/support/softmax_rows.h"
#include "kernels/support/vectorize.h"

namespace millrace::softmax_cross_entropy {
namespace {

struct Geometry {
  int64_t rows;
  int64_t classes;
  double smoothing;
  double samples;  // of which the loss is the mean

  int64_t grain() const { return kElementwiseGrain / 4 / std::max<int64_t>(classes, 1); }
  bool contains(int64_t label) const { return label >= 0 && label < classes; }
};

Geometry geometry_of(const KernelRequest& request, size_t rows_by_classes) {
  const Shape& shape = request.inputs.at(rows_by_classes).type.shape;
  const Attributes& attributes = request.op.attributes;
  const int64_t samples = attributes.has("samples") ? attributes.integer("samples") : shape.at(0);
  return {shape.at(0), shape.at(1), attributes.number("label_smoothing"),
          static_cast<double>(samples)};
}

std::unique_ptr<Kernel> make_forward(const KernelRequest& request, std::string* refusal) {
  if (!is_plain(request, refusal)) return nullptr;
  const Geometry g = geometry_of(request, 0);
  const auto run = [g](const KernelArguments& arguments) {
    const auto* logits = arguments.input<float>(0);
    const auto* labels = arguments.input<int32_t>(1);
    auto* probabilities = arguments.output<float>(1);
    auto* losses = reinterpret_cast<double*>(arguments.workspace);
    parallel_for(g.rows, g.grain(), [=](int64_t n) {
      const float* x = logits + n * g.classes;
      float* p = probabilities + n * g.classes;
      const int64_t label = labels[n];
      losses[n] = std::numeric_limits<double>::quiet_NaN();
      RowSums sums;
      exponentiate_row(x, g.classes, p, &sums);
      if (g.contains(label)) {
        const double target = static_cast<double>(x[label]) - sums.maximum;
        const double mean = sums.shifted / static_cast<double>(g.classes);
        losses[n] = std::log(sums.exponentials) - (1 - g.smoothing) * target;
        if (g.smoothing != 0) losses[n] -= g.smoothing * mean;
      }
      scale_row(p, g.classes, static_cast<float>(1 / sums.exponentials));
    });
    double loss = 0;
    for (int64_t n = 0; n < g.rows; ++n) loss += losses[n];
    arguments.output<float>(0)[0] = static_cast<float>(loss / g.samples);
  };
  return make_function_kernel(run, static_cast<uint64_t>(g.rows) * sizeof(double));
}

std::unique_ptr<Kernel> make_backward(const KernelRequest& request, std::string* refusal) {
  if (!is_plain(request, refusal)) return nullptr;
  const Geometry g = geometry_of(request, 1);
  return make_function_kernel([g](const KernelArguments& arguments) {
    const float factor = arguments.input<float>(0)[0] / static_cast<float>(g.samples);
    const auto* probabilities = arguments.input<float>(1);
    const auto* labels = arguments.input<int32_t>(2);
    auto* gradients = arguments.output<float>(0);
    const auto share = static_cast<float>(g.smoothing / static_cast<double>(g.classes));
    parallel_for(g.rows, g.grain(), [=](int64_t n) {
      float* row = gradients + n * g.classes;
      const int64_t label = labels[n];
      if (!g.contains(label)) {
        std::fill(row, row + g.classes, std::numeric_limits<float>::quiet_NaN());
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
      const int64_t label = arguments.input<int32_t>(1)[n];
      const double maximum = *std::max_element(x, x + g.classes);
      double sum = 0;
      for (int64_t c = 0; c < g.classes; ++c) sum += std::exp(x[c] - maximum);
      for (int64_t c = 0; c < g.classes; ++c) {
        const double log_probability = x[c] - maximum - std::log(sum);
        const double target =
            (c == label ? 1 - g.smoothing : 0) + g.smoothing / static_cast<double>(g.classes);
        loss -= target * log_probability;
        arguments.output<float>(1)[n * g.classes + c] =
            static_cast<float>(std::exp(log_probability));
      }
      if (!g.contains(label)) loss = std::numeric_limits<double>::quiet_NaN();
    }
    arguments.output<float>(0)[0] = static_cast<float>(loss / g.samples);
  });
}

std::unique_ptr<Kernel> reference_backward(const KernelRequest& request, std::string* refusal) {
  if (!is_plain(request, refusal)) return nullptr;
  return make_function_kernel([g = geometry_of(request, 1)](const KernelArguments& arguments) {
    const double factor = arguments.input<float>(0)[0] / g.samples;
    for (int64_t n = 0; n < g.rows; ++n) {
      const int64_t label = arguments.input<int32_t>(2)[n];
      for (int64_t c = 0; c < g.classes; ++c) {
        const double target =
            (c == label ? 1 - g.smoothing : 0) + g.smoothing / static_cast<double>(g.classes);
        const double gradient = (arguments.input<float>(1)[n * g.classes + c] - target) * factor;
        arguments.output<float>(0)[n * g.classes + c] =
            g.contains(label) ? static_cast<float>(gradient)
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

}  // namespace millrace::softmax_cross_entropy
