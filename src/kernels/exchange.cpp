// Of the operators that exchange gradients and weights nothing is done by a kernel.
#include <cstring>

#include "base/parallel.h"
#include "kernels/support/function_kernel.h"
#include "kernels/support/layout_rules.h"
#include "kernels/support/request_checks.h"
#include "kernels/support/vectorize.h"

namespace millrace::kernels::exchange {
namespace {

MILLRACE_VECTORIZED void add_to(float* sum, const float* values, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) sum[i] += values[i];
}

std::unique_ptr<Kernel> make_accumulate(const KernelRequest& request, std::string* refusal) {
  if (!is_uniform(request, refusal)) return nullptr;
  const int64_t count = request.inputs[0].physical_elements();
  return make_function_kernel([count](const KernelArguments& a) {
    auto* sum = a.input<float>(0);
    const auto* values = a.input<float>(1);
    const bool first = a.step->micro_batch == 0;
    parallel_ranges(count, kElementwiseGrain, [=](int, int64_t begin, int64_t end) {
      if (first) {
        std::memcpy(sum + begin, values + begin, static_cast<size_t>(end - begin) * sizeof(float));
      } else {
        add_to(sum + begin, values + begin, end - begin);
      }
    });
  });
}

LayoutWish follow_parameters(const KernelRequest& request) {
  const auto tensors = static_cast<size_t>(request.op.attributes.integer("tensors"));
  LayoutWish wish;
  for (size_t i = 0; i < 2 * tensors; ++i) {
    wish.inputs.push_back(request.inputs[tensors + i % tensors].layout);
  }
  wish.outputs.assign(wish.inputs.begin(), wish.inputs.begin() + static_cast<ptrdiff_t>(tensors));
  wish.outputs.resize(request.outputs.size());
  return wish;
}

LayoutWish keep(const KernelRequest& request) {
  LayoutWish wish;
  for (const TensorSpec& input : request.inputs) wish.inputs.push_back(input.layout);
  wish.outputs.assign(wish.inputs.begin(),
                      wish.inputs.begin() + static_cast<ptrdiff_t>(request.outputs.size()));
  return wish;
}

LayoutWish follow_parameter(const KernelRequest& request) { return follow_input(request, 2); }

}  // namespace

std::vector<KernelFamily> kernels() {
  return {{"gradient_reduce_start", {}, follow_parameters},
          {"gradient_reduce_wait", {}, keep},
          {"parameter_gather_start", {}, keep},
          {"exchange_wait", {}},
          {"accumulate", {{"vector", make_accumulate, true}}, follow_parameter}};
}

}  // namespace millrace::kernels::exchange
