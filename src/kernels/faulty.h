// A fault for trials.
#pragma once

#include <memory>
#include <vector>

#include "kernels/kernel.h"

namespace millrace {

// Runs the kernel, and in each of these steps makes the first value of its first output, a float,
// infinite.
std::unique_ptr<Kernel> make_faulty(std::shared_ptr<Kernel> kernel, std::vector<int64_t> steps);

}  // namespace millrace
