#include "base/parallel.h"
#include "kernels/support/elements.h"
#include "kernels/support/function_kernel.h"
#include "kernels/support/layout_rules.h"
#include "kernels/support/request_checks.h"

namespace millrace::kernels::add {
namespace {

MILLRACE_VECTORIZED void add(const float* a, const float* b, float* y, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) y[i] = a[i] + b[i];
}

MILLRACE_VECTORIZED void add_relu(const float* a, const float* b, float* y, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    const float sum = a[i] + b[i];
    y[i] = sum < 0 ? 0.0f : sum;
  }
}

MILLRACE_VECTORIZED void add_relu_backward(const float* da, const float* db, const float* y,
                                           float* dx, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    const float sum = da[i] + db[i];
    dx[i] = y[i] <= 0 ? 0.0f : sum;
  }
}

std::unique_ptr<Kernel> make_add(const KernelRequest& request, std::string* refusal) {
  if (!is_uniform(request, refusal)) return nullptr;
  const auto range = request.op.attributes.flag("relu") ? add_relu : add;
  return make_elementwise<2>(request, [range](const auto& x, float* y, int64_t, int64_t count) {
    range(x[0], x[1], y, count);
  });
}

std::unique_ptr<Kernel> make_add_relu_backward(const KernelRequest& request, std::string* refusal) {
  if (!is_uniform(request, refusal)) return nullptr;
  return make_elementwise<3>(request, [](const auto& x, float* dx, int64_t, int64_t count) {
    add_relu_backward(x[0], x[1], x[2], dx, count);
  });
}

std::unique_ptr<Kernel> reference_add(const KernelRequest& request, std::string* refusal) {
  if (!is_plain(request, refusal)) return nullptr;
  const bool relu = request.op.attributes.flag("relu");
  const int64_t count = request.inputs[0].elements();
  return make_function_kernel([relu, count](const KernelArguments& arguments) {
    for (int64_t i = 0; i < count; ++i) {
      const float sum = arguments.input<float>(0)[i] + arguments.input<float>(1)[i];
      arguments.output<float>(0)[i] = relu && sum < 0 ? 0 : sum;
    }
  });
}

std::unique_ptr<Kernel> reference_add_relu_backward(const KernelRequest& request,
                                                    std::string* refusal) {
  if (!is_plain(request, refusal)) return nullptr;
  const int64_t count = request.inputs[0].elements();
  const graph::DataType type = request.inputs[2].type.dtype;
  return make_function_kernel([count, type](const KernelArguments& arguments) {
    const StoredNumbers y = {type, arguments.inputs[2]};
    for (int64_t i = 0; i < count; ++i) {
      const float sum = arguments.input<float>(0)[i] + arguments.input<float>(1)[i];
      arguments.output<float>(0)[i] = y[i] <= 0 ? 0 : sum;
    }
  });
}

LayoutWish follow(const KernelRequest& request) { return follow_input(request, 0); }

}  // namespace

std::vector<KernelFamily> kernels() {
  return {
      {"add", {{"vector", make_add, true}, {"reference", reference_add}}, follow},
      {"add_relu_backward",
       {{"vector", make_add_relu_backward, true}, {"reference", reference_add_relu_backward}},
       [](const KernelRequest& request) { return follow_stored(request, 2); }},
  };
}

}  // namespace millrace::kernels::add
