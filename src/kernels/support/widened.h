// Lets a kernel of float32 serve tensors of 16 bits.
#pragma once

#include <memory>
#include <string>

#include "kernels/kernel.h"

namespace millrace {

// Whether a tensor of the request has 16 bits.
bool has_halves(const KernelRequest& request);

// The request with every tensor of 16 bits taken as float32.
KernelRequest widened_request(const KernelRequest& request);

// The kernel that `implementation` makes for the widened request, between copies of the tensors
// of 16 bits in the workspace. Null, with the reason, where it refuses.
std::unique_ptr<Kernel> make_widened(const KernelImplementation& implementation,
                                     const KernelRequest& request, std::string* refusal);

}  // namespace millrace
