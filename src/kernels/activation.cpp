#include <cmath>

#include "base/parallel.h"
#include "kernels/support/elements.h"
#include "kernels/support/function_kernel.h"
#include "kernels/support/layout_rules.h"
#include "kernels/support/request_checks.h"
#include "kernels/support/vector_math.h"

namespace millrace::kernels::activation {
namespace {

// ---- Vectorised ranges.

MILLRACE_VECTORIZED void relu(const float* x, float* y, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) y[i] = x[i] < 0 ? 0.0f : x[i];
}

MILLRACE_VECTORIZED void relu6(const float* x, float* y, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    const float positive = x[i] < 0 ? 0.0f : x[i];
    y[i] = positive > 6 ? 6.0f : positive;
  }
}

MILLRACE_VECTORIZED void sigmoid(const float* x, float* y, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) y[i] = vector_sigmoid(x[i]);
}

MILLRACE_VECTORIZED void hyperbolic_tangent(const float* x, float* y, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) y[i] = vector_tanh(x[i]);
}

MILLRACE_VECTORIZED void hardsigmoid(const float* x, float* y, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) y[i] = vector_hardsigmoid(x[i]);
}

MILLRACE_VECTORIZED void hardswish(const float* x, float* y, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) y[i] = vector_hardswish(x[i]);
}

MILLRACE_VECTORIZED void silu(const float* x, float* y, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) y[i] = vector_silu(x[i]);
}

MILLRACE_VECTORIZED void relu_backward(const float* dy, const float* y, float* dx, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) dx[i] = y[i] <= 0 ? 0.0f : dy[i];
}

MILLRACE_VECTORIZED void relu6_backward(const float* dy, const float* y, float* dx, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    const float low = y[i] <= 0 ? 0.0f : dy[i];
    dx[i] = y[i] >= 6 ? 0.0f : low;
  }
}

MILLRACE_VECTORIZED void sigmoid_backward(const float* dy, const float* y, float* dx,
                                          int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) dx[i] = dy[i] * (y[i] * (1.0f - y[i]));
}

MILLRACE_VECTORIZED void tanh_backward(const float* dy, const float* y, float* dx, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) dx[i] = dy[i] * (1.0f - y[i] * y[i]);
}

MILLRACE_VECTORIZED void hardsigmoid_backward(const float* dy, const float* y, float* dx,
                                              int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    const float low = y[i] <= 0 ? 0.0f : dy[i] * (1.0f / 6);
    dx[i] = y[i] >= 1 ? 0.0f : low;
  }
}

// The last two look at the input.
MILLRACE_VECTORIZED void hardswish_backward(const float* dy, const float* x, float* dx,
                                            int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) dx[i] = dy[i] * vector_hardswish_slope(x[i]);
}

MILLRACE_VECTORIZED void silu_backward(const float* dy, const float* x, float* dx, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) dx[i] = dy[i] * vector_silu_slope(x[i]);
}

using Unary = void (*)(const float*, float*, int64_t);
using Binary = void (*)(const float*, const float*, float*, int64_t);

std::unique_ptr<Kernel> make_unary(const KernelRequest& request, std::string* refusal,
                                   Unary range) {
  if (!is_uniform(request, refusal)) return nullptr;
  return make_elementwise<1>(
      request, [range](const auto& x, float* y, int64_t, int64_t count) { range(x[0], y, count); });
}

std::unique_ptr<Kernel> make_binary(const KernelRequest& request, std::string* refusal,
                                    Binary range) {
  if (!is_uniform(request, refusal)) return nullptr;
  return make_elementwise<2>(request, [range](const auto& x, float* y, int64_t, int64_t count) {
    range(x[0], x[1], y, count);
  });
}

// For functions that are not 0 at 0, as the padding of a blocked layout must stay 0.
std::unique_ptr<Kernel> make_unpadded(const KernelRequest& request, std::string* refusal,
                                      Unary range) {
  if (is_padded(request.inputs[0])) {
    *refusal = "the layout is padded";
    return nullptr;
  }
  return make_unary(request, refusal, range);
}

LayoutWish follow(const KernelRequest& request) { return follow_input(request, 0); }
LayoutWish follow_read(const KernelRequest& request) { return follow_stored(request, 1); }

LayoutWish follow_unpadded(const KernelRequest& request) {
  if (is_padded(request.inputs[0])) return {{graph::Layout()}, {graph::Layout()}};
  return follow_input(request, 0);
}

// ---- References.

template <double (*function)(double)>
std::unique_ptr<Kernel> reference_unary(const KernelRequest& request, std::string* refusal) {
  if (!is_plain(request, refusal)) return nullptr;
  return make_function_kernel([count = request.inputs[0].elements()](const KernelArguments& a) {
    for (int64_t i = 0; i < count; ++i) {
      a.output<float>(0)[i] = static_cast<float>(function(a.input<float>(0)[i]));
    }
  });
}

template <double (*derivative_at)(double)>
std::unique_ptr<Kernel> reference_backward(const KernelRequest& request, std::string* refusal) {
  if (!is_plain(request, refusal)) return nullptr;
  const graph::DataType type = request.inputs[1].type.dtype;
  const int64_t count = request.inputs[0].elements();
  return make_function_kernel([count, type](const KernelArguments& a) {
    const StoredNumbers read = {type, a.inputs[1]};
    for (int64_t i = 0; i < count; ++i) {
      const double derivative = derivative_at(read[i]);
      a.output<float>(0)[i] = static_cast<float>(a.input<float>(0)[i] * derivative);
    }
  });
}

double plain_relu(double x) { return x < 0 ? 0 : x; }
double plain_relu6(double x) { return x < 0 ? 0 : x > 6 ? 6 : x; }
double plain_sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double plain_tanh(double x) { return std::tanh(x); }
double plain_hardsigmoid(double x) { return plain_relu6(x + 3) / 6; }
double plain_hardswish(double x) { return x * plain_relu6(x + 3) / 6; }
double plain_silu(double x) { return x * plain_sigmoid(x); }
double relu_slope(double y) { return y <= 0 ? 0 : 1; }
double relu6_slope(double y) { return y <= 0 || y >= 6 ? 0 : 1; }
double sigmoid_slope(double y) { return y * (1 - y); }
double tanh_slope(double y) { return 1 - y * y; }
double hardsigmoid_slope(double y) { return y <= 0 || y >= 1 ? 0 : 1.0 / 6; }
double hardswish_slope(double x) { return x < -3 ? 0 : x > 3 ? 1 : (2 * x + 3) / 6; }
double silu_slope(double x) { return plain_sigmoid(x) + x * plain_sigmoid(x) * plain_sigmoid(-x); }

// ---- Kernels of each type.

template <Unary range, double (*function)(double)>
KernelFamily unary(std::string_view type) {
  const auto create = [](const KernelRequest& request, std::string* refusal) {
    return make_unary(request, refusal, range);
  };
  return {type, {{"vector", create, true}, {"reference", reference_unary<function>}}, follow};
}

template <Unary range, double (*function)(double)>
KernelFamily unpadded(std::string_view type) {
  const auto create = [](const KernelRequest& request, std::string* refusal) {
    return make_unpadded(request, refusal, range);
  };
  return {
      type, {{"vector", create, true}, {"reference", reference_unary<function>}}, follow_unpadded};
}

template <Binary range, double (*derivative_at)(double)>
KernelFamily backward(std::string_view type) {
  const auto create = [](const KernelRequest& request, std::string* refusal) {
    return make_binary(request, refusal, range);
  };
  return {type,
          {{"vector", create, true}, {"reference", reference_backward<derivative_at>}},
          follow_read};
}

}  // namespace

std::vector<KernelFamily> kernels() {
  return {
      unary<relu, plain_relu>("relu"),
      unary<relu6, plain_relu6>("relu6"),
      unpadded<sigmoid, plain_sigmoid>("sigmoid"),
      unpadded<hardsigmoid, plain_hardsigmoid>("hardsigmoid"),
      unary<hardswish, plain_hardswish>("hardswish"),
      unary<silu, plain_silu>("silu"),
      unary<hyperbolic_tangent, plain_tanh>("tanh"),
      backward<relu_backward, relu_slope>("relu_backward"),
      backward<relu6_backward, relu6_slope>("relu6_backward"),
      backward<sigmoid_backward, sigmoid_slope>("sigmoid_backward"),
      backward<tanh_backward, tanh_slope>("tanh_backward"),
      backward<hardsigmoid_backward, hardsigmoid_slope>("hardsigmoid_backward"),
      backward<hardswish_backward, hardswish_slope>("hardswish_backward"),
      backward<silu_backward, silu_slope>("silu_backward"),
  };
}

}  // namespace millrace::kernels::activation
