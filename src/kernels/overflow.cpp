#include <cmath>

#include "kernels/support/finite.h"
#include "kernels/support/function_kernel.h"

namespace millrace::kernels::overflow {
namespace {

// Where the gradients are.
struct Check {
  size_t first;  // gradient among the inputs
  std::vector<int64_t> counts;

  explicit Check(const KernelRequest& request)
      : first(request.op.attributes.flag("has_squares") ? 2 : 1) {
    for (size_t i = first; i < request.inputs.size(); ++i) {
      counts.push_back(request.inputs[i].physical_elements());
    }
  }

  // Writes whether any gradient of this device is not finite, and the number from 1 of the first, 0
  // if it has none.
  template <typename IsFinite>
  void run(const KernelArguments& a, bool look, const IsFinite& is_finite) const {
    auto* out = a.input<float>(0);
    size_t found = 0;
    for (size_t i = 0; look && found == 0 && i < counts.size(); ++i) {
      if (!is_finite(a.input<float>(first + i), counts[i])) found = i + 1;
    }
    const bool squares = first == 2 && !std::isfinite(a.input<float>(1)[0]);
    out[0] = found > 0 || squares ? 1.0f : 0.0f;
    out[1] = static_cast<float>(found);
  }
};

// Where the norm is known, gradients need only be looked at when it is not finite.
std::unique_ptr<Kernel> make_check(const KernelRequest& request, std::string*) {
  return make_function_kernel([check = Check(request)](const KernelArguments& a) {
    const bool look = check.first == 1 || !std::isfinite(a.input<float>(1)[0]);
    check.run(a, look, all_finite);
  });
}

std::unique_ptr<Kernel> reference_check(const KernelRequest& request, std::string*) {
  return make_function_kernel([check = Check(request)](const KernelArguments& a) {
    check.run(a, true, [](const float* values, int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        if (!std::isfinite(values[i])) return false;
      }
      return true;
    });
  });
}

// Of several micro-batches any may have been the one.
std::unique_ptr<Kernel> make_probe(const KernelRequest& request, std::string*) {
  const int64_t count = request.inputs[1].physical_elements();
  return make_function_kernel([count](const KernelArguments& a) {
    float& found = a.input<float>(0)[0];
    if (a.step->micro_batch == 0) found = 0;
    if (!all_finite(a.input<float>(1), count)) found = 1;
  });
}

// Any layout will do: padding is finite.
LayoutWish keep(const KernelRequest& request) {
  LayoutWish wish;
  for (const TensorSpec& input : request.inputs) wish.inputs.push_back(input.layout);
  return wish;
}

}  // namespace

std::vector<KernelFamily> kernels() {
  return {{"overflow_check", {{"vector", make_check}, {"reference", reference_check}}, keep},
          {"overflow_probe", {{"vector", make_probe}}, keep}};
}

}  // namespace millrace::kernels::overflow
