// A fault for trials.
#pragma once

#include <memory>
#include <vector>

#include "kernels/kernel.h"

namespace millrace::kernels {

// Runs the kernel, and in each of these steps makes the first `values` of its first output, floats,
// infinite: several, as what is behind may pass over one, like the gradient of a ReLU.
std::unique_ptr<Kernel> make_faulty(std::shared_ptr<Kernel> kernel, std::vector<int64_t> steps,
                                    int64_t values);

}  // namespace millrace::kernels
