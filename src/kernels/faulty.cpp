#include "kernels/faulty.h"

#include <algorithm>
#include <limits>

#include "kernels/support/function_kernel.h"

namespace millrace::kernels {

std::unique_ptr<Kernel> make_faulty(std::shared_ptr<Kernel> kernel, std::vector<int64_t> steps,
                                    int64_t values) {
  const uint64_t workspace = kernel->workspace_bytes();
  return make_function_kernel(
      [kernel = std::move(kernel), steps = std::move(steps),
       values](const KernelArguments& arguments) {
        kernel->run(arguments);
        if (std::find(steps.begin(), steps.end(), arguments.step->step) == steps.end()) return;
        std::fill_n(arguments.output<float>(0), values, std::numeric_limits<float>::infinity());
      },
      workspace);
}

}  // namespace millrace::kernels
