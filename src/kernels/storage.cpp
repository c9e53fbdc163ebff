// narrow and widen.
#include "base/half.h"
#include "kernels/support/conversion.h"
#include "kernels/support/function_kernel.h"
#include "kernels/support/layout_rules.h"
#include "kernels/support/request_checks.h"

namespace millrace {
namespace {

std::unique_ptr<Kernel> make_narrow(const KernelRequest& request, std::string* refusal) {
  if (!is_uniform(request, refusal)) return nullptr;
  const int64_t count = request.inputs[0].physical_elements();
  return make_function_kernel(
      [count, type = request.outputs[0].type.dtype](const KernelArguments& arguments) {
        narrow(type, arguments.input<const float>(0), count, arguments.outputs[0]);
      });
}

std::unique_ptr<Kernel> make_widen(const KernelRequest& request, std::string* refusal) {
  if (!is_uniform(request, refusal)) return nullptr;
  const int64_t count = request.inputs[0].physical_elements();
  return make_function_kernel(
      [count, type = request.inputs[0].type.dtype](const KernelArguments& arguments) {
        widen(type, arguments.inputs[0], count, arguments.output<float>(0));
      });
}

std::unique_ptr<Kernel> reference_narrow(const KernelRequest& request, std::string* refusal) {
  if (!is_uniform(request, refusal)) return nullptr;
  const int64_t count = request.inputs[0].physical_elements();
  const bool is_f16 = request.outputs[0].type.dtype == DataType::f16;
  return make_function_kernel([count, is_f16](const KernelArguments& arguments) {
    const auto* values = arguments.input<const float>(0);
    for (int64_t i = 0; i < count; ++i) {
      arguments.output<uint16_t>(0)[i] = is_f16 ? to_f16(values[i]) : to_bf16(values[i]);
    }
  });
}

std::unique_ptr<Kernel> reference_widen(const KernelRequest& request, std::string* refusal) {
  if (!is_uniform(request, refusal)) return nullptr;
  const int64_t count = request.inputs[0].physical_elements();
  const bool is_f16 = request.inputs[0].type.dtype == DataType::f16;
  return make_function_kernel([count, is_f16](const KernelArguments& arguments) {
    const auto* stored = arguments.input<const uint16_t>(0);
    for (int64_t i = 0; i < count; ++i) {
      arguments.output<float>(0)[i] = is_f16 ? from_f16(stored[i]) : from_bf16(stored[i]);
    }
  });
}

LayoutWish follow(const KernelRequest& request) { return follow_input(request, 0); }

}  // namespace

std::vector<KernelFamily> storage_kernels() {
  return {
      {"narrow", {{"vector", make_narrow, true}, {"reference", reference_narrow, true}}, follow},
      {"widen", {{"vector", make_widen, true}, {"reference", reference_widen, true}}, follow}};
}

}  // namespace millrace
