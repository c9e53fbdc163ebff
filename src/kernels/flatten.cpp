#include <cstring>

#include "base/parallel.h"
#include "kernels/support/function_kernel.h"
#include "kernels/support/request_checks.h"

namespace millrace::kernels::flatten {
namespace {

// Views need no kernel; this one serves where the output could not share the input's memory.
std::unique_ptr<Kernel> make_copy(const KernelRequest& request, std::string* refusal) {
  if (!is_plain(request, refusal)) return nullptr;
  const int64_t bytes = request.inputs[0].bytes();
  return make_function_kernel([bytes](const KernelArguments& arguments) {
    const std::byte* x = arguments.inputs[0];
    std::byte* y = arguments.outputs[0];
    if (x == y) return;
    parallel_ranges(bytes, 1 << 17, [=](int, int64_t begin, int64_t end) {
      std::memcpy(y + begin, x + begin, static_cast<size_t>(end - begin));
    });
  });
}

std::unique_ptr<Kernel> reference_copy(const KernelRequest& request, std::string* refusal) {
  if (!is_plain(request, refusal)) return nullptr;
  const int64_t bytes = request.inputs[0].bytes();
  return make_function_kernel([bytes](const KernelArguments& arguments) {
    for (int64_t i = 0; i < bytes; ++i) arguments.outputs[0][i] = arguments.inputs[0][i];
  });
}

}  // namespace

std::vector<KernelFamily> kernels() {
  return {
      {"flatten", {{"copy", make_copy, true}, {"reference", reference_copy, true}}},
      {"reshape", {{"copy", make_copy, true}, {"reference", reference_copy, true}}},
  };
}

}  // namespace millrace::kernels::flatten
