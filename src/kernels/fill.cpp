#include <algorithm>

#include "base/parallel.h"
#include "kernels/support/function_kernel.h"
#include "kernels/support/request_checks.h"
#include "kernels/support/vectorize.h"

namespace millrace::kernels::fill {
namespace {

std::unique_ptr<Kernel> make_fill(const KernelRequest& request, std::string* refusal) {
  if (!is_plain(request, refusal)) return nullptr;
  const int64_t count = request.outputs[0].elements();
  const auto value = static_cast<float>(request.op.attributes.number("value"));
  const bool is_scaled = request.op.attributes.flag("is_scaled");
  return make_function_kernel([=](const KernelArguments& arguments) {
    auto* y = arguments.output<float>(0);
    const float filled = is_scaled ? value * arguments.step->loss_scale : value;
    parallel_ranges(count, kElementwiseGrain, [=](int, int64_t begin, int64_t end) {
      std::fill(y + begin, y + end, filled);
    });
  });
}

std::unique_ptr<Kernel> reference_fill(const KernelRequest& request, std::string* refusal) {
  if (!is_plain(request, refusal)) return nullptr;
  const int64_t count = request.outputs[0].elements();
  const double value = request.op.attributes.number("value");
  const bool is_scaled = request.op.attributes.flag("is_scaled");
  return make_function_kernel([=](const KernelArguments& arguments) {
    const double scale = is_scaled ? arguments.step->loss_scale : 1.0;
    for (int64_t i = 0; i < count; ++i) {
      arguments.output<float>(0)[i] = static_cast<float>(value * scale);
    }
  });
}

}  // namespace

std::vector<KernelFamily> kernels() {
  return {{"fill", {{"vector", make_fill}, {"reference", reference_fill}}}};
}

}  // namespace millrace::kernels::fill
