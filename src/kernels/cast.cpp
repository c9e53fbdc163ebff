// cast between float32 and 16 bits, in any layout.
#include <algorithm>

#include "base/half.h"
#include "kernels/support/conversion.h"
#include "kernels/support/function_kernel.h"
#include "kernels/support/layout_rules.h"
#include "kernels/support/request_checks.h"

namespace millrace::kernels::cast {
namespace {

std::unique_ptr<Kernel> make_cast(const KernelRequest& request, std::string* refusal) {
  if (!is_uniform(request, refusal)) return nullptr;
  const graph::DataType from = request.inputs[0].type.dtype;
  const graph::DataType to = request.outputs[0].type.dtype;
  const int64_t count = request.inputs[0].physical_elements();
  if (from == graph::DataType::f32) {
    return make_function_kernel([=](const KernelArguments& arguments) {
      narrow(to, arguments.input<const float>(0), count, arguments.outputs[0]);
    });
  }
  if (to == graph::DataType::f32) {
    return make_function_kernel([=](const KernelArguments& arguments) {
      widen(from, arguments.inputs[0], count, arguments.output<float>(0));
    });
  }
  *refusal = "neither is f32";
  return nullptr;
}

float read(graph::DataType type, const std::byte* data, int64_t i) {
  if (type == graph::DataType::f32) return reinterpret_cast<const float*>(data)[i];
  const uint16_t half = reinterpret_cast<const uint16_t*>(data)[i];
  return type == graph::DataType::f16 ? from_f16(half) : from_bf16(half);
}

void write(graph::DataType type, float value, std::byte* data, int64_t i) {
  if (type == graph::DataType::f32) {
    reinterpret_cast<float*>(data)[i] = value;
  } else {
    reinterpret_cast<uint16_t*>(data)[i] =
        type == graph::DataType::f16 ? to_f16(value) : to_bf16(value);
  }
}

std::unique_ptr<Kernel> reference_cast(const KernelRequest& request, std::string* refusal) {
  if (!is_plain(request, refusal)) return nullptr;
  const graph::DataType from = request.inputs[0].type.dtype;
  const graph::DataType to = request.outputs[0].type.dtype;
  const int64_t count = request.inputs[0].elements();
  return make_function_kernel([=](const KernelArguments& arguments) {
    for (int64_t i = 0; i < count; ++i) {
      write(to, read(from, arguments.inputs[0], i), arguments.outputs[0], i);
    }
  });
}

LayoutWish follow(const KernelRequest& request) { return follow_input(request, 0); }

}  // namespace

std::vector<KernelFamily> kernels() {
  return {{"cast", {{"vector", make_cast, true}, {"reference", reference_cast, true}}, follow}};
}

}  // namespace millrace::kernels::cast
