#include <algorithm>
#include <cmath>

#include "base/parallel.h"
#include "kernels/support/function_kernel.h"
#include "kernels/support/request_checks.h"
#include "kernels/support/vectorize.h"

namespace millrace::kernels::l2_normalize {
namespace {

MILLRACE_VECTORIZED double dot(const float* a, const float* b, int64_t count) {
  DoubleLanes sums = {};
  int64_t i = 0;
  for (; i + kDoubleLanes <= count; i += kDoubleLanes) {
    DoubleLanes first;
    DoubleLanes second;
    load_lanes(a + i, first);
    load_lanes(b + i, second);
    sums += first * second;
  }
  double sum = sum_of_lanes(sums);
  for (; i < count; ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

MILLRACE_VECTORIZED void scale_row(const float* x, float factor, float* y, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) y[i] = x[i] * factor;
}

// dx = (dy - y * along) * factor
MILLRACE_VECTORIZED void project_row(const float* dy, const float* y, float along, float factor,
                                     float* dx, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) dx[i] = (dy[i] - y[i] * along) * factor;
}

// A clamped norm is a constant, which the gradient does not pass through.
double clamp_of(const KernelRequest& request) {
  return request.op.attributes.has("epsilon") ? request.op.attributes.number("epsilon") : 0.0;
}

std::unique_ptr<Kernel> make_forward(const KernelRequest& request, std::string* refusal) {
  if (!is_plain(request, refusal)) return nullptr;
  const int64_t rows = request.inputs[0].type.shape.at(0);
  const int64_t width = request.inputs[0].type.shape.at(1);
  const auto epsilon = static_cast<float>(request.op.attributes.number("epsilon"));
  return make_function_kernel([=](const KernelArguments& arguments) {
    const auto* x = arguments.input<float>(0);
    auto* y = arguments.output<float>(0);
    auto* norms = arguments.output<float>(1);
    parallel_for(rows, kElementwiseGrain / std::max<int64_t>(width, 1), [=](int64_t n) {
      const float* row = x + n * width;
      norms[n] = std::max(static_cast<float>(std::sqrt(dot(row, row, width))), epsilon);
      scale_row(row, 1.0f / norms[n], y + n * width, width);
    });
  });
}

std::unique_ptr<Kernel> make_backward(const KernelRequest& request, std::string* refusal) {
  if (!is_plain(request, refusal)) return nullptr;
  const int64_t rows = request.inputs[0].type.shape.at(0);
  const int64_t width = request.inputs[0].type.shape.at(1);
  const auto epsilon = static_cast<float>(clamp_of(request));
  return make_function_kernel([=](const KernelArguments& arguments) {
    const auto* dy = arguments.input<float>(0);
    const auto* y = arguments.input<float>(1);
    const auto* norms = arguments.input<float>(2);
    auto* dx = arguments.output<float>(0);
    parallel_for(rows, kElementwiseGrain / std::max<int64_t>(width, 1), [=](int64_t n) {
      const int64_t at = n * width;
      const double along = norms[n] <= epsilon ? 0 : dot(dy + at, y + at, width);
      project_row(dy + at, y + at, static_cast<float>(along), 1.0f / norms[n], dx + at, width);
    });
  });
}

std::unique_ptr<Kernel> reference_forward(const KernelRequest& request, std::string* refusal) {
  if (!is_plain(request, refusal)) return nullptr;
  const int64_t rows = request.inputs[0].type.shape.at(0);
  const int64_t width = request.inputs[0].type.shape.at(1);
  const double epsilon = request.op.attributes.number("epsilon");
  return make_function_kernel([=](const KernelArguments& arguments) {
    for (int64_t n = 0; n < rows; ++n) {
      const float* x = arguments.input<float>(0) + n * width;
      double squares = 0;
      for (int64_t i = 0; i < width; ++i) squares += static_cast<double>(x[i]) * x[i];
      const double norm = std::max(std::sqrt(squares), epsilon);
      for (int64_t i = 0; i < width; ++i) {
        arguments.output<float>(0)[n * width + i] = static_cast<float>(x[i] / norm);
      }
      arguments.output<float>(1)[n] = static_cast<float>(norm);
    }
  });
}

std::unique_ptr<Kernel> reference_backward(const KernelRequest& request, std::string* refusal) {
  if (!is_plain(request, refusal)) return nullptr;
  const int64_t rows = request.inputs[0].type.shape.at(0);
  const int64_t width = request.inputs[0].type.shape.at(1);
  const auto epsilon = static_cast<float>(clamp_of(request));
  return make_function_kernel([=](const KernelArguments& arguments) {
    for (int64_t n = 0; n < rows; ++n) {
      const float* dy = arguments.input<float>(0) + n * width;
      const float* y = arguments.input<float>(1) + n * width;
      const double norm = arguments.input<float>(2)[n];
      double along = 0;
      for (int64_t i = 0; i < width; ++i) along += static_cast<double>(dy[i]) * y[i];
      if (norm <= epsilon) along = 0;
      for (int64_t i = 0; i < width; ++i) {
        arguments.output<float>(0)[n * width + i] =
            static_cast<float>((dy[i] - y[i] * along) / norm);
      }
    }
  });
}

}  // namespace

std::vector<KernelFamily> kernels() {
  return {
      {"l2_normalize", {{"vector", make_forward}, {"reference", reference_forward}}},
      {"l2_normalize_backward", {{"vector", make_backward}, {"reference", reference_backward}}},
  };
}

}  // namespace millrace::kernels::l2_normalize
