#include "kernels/faulty.h"

#include <algorithm>
#include <limits>

#include "kernels/support/function_kernel.h"

namespace millrace {

std::unique_ptr<Kernel> make_faulty(std::shared_ptr<Kernel> kernel, std::vector<int64_t> steps) {
  const uint64_t workspace = kernel->workspace_bytes();
  return make_function_kernel(
      [kernel = std::move(kernel), steps = std::move(steps)](const KernelArguments& arguments) {
        kernel->run(arguments);
        if (std::find(steps.begin(), steps.end(), arguments.step->step) == steps.end()) return;
        arguments.output<float>(0)[0] = std::numeric_limits<float>::infinity();
      },
      workspace);
}

}  // namespace millrace
