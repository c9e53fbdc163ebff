// Lets a kernel of float32 serve tensors of 16 bits.
#pragma once

#include <memory>
#include <string>

#include "kernels/kernel.h"

namespace millrace::kernels {

// Whether a tensor of the request has 16 bits.
bool has_halves(const KernelRequest& request);

// The request with every tensor of 16 bits taken as float32; with `parts` that divide the batch,
// for one of them.
KernelRequest widened_request(const KernelRequest& request, int64_t parts = 1);

// The kernel that `implementation` makes for the widened request, between copies of the tensors
// of 16 bits in the workspace. It runs for one of `parts` of the batch after the other, so that the
// copies are those of one part; float32 inputs are the same for all, and float32 outputs, which
// must be sums over the batch, are added up. Null, with the reason, where that cannot be.
std::unique_ptr<Kernel> make_widened(const KernelImplementation& implementation,
                                     const KernelRequest& request, std::string* refusal,
                                     int64_t parts = 1);

}  // namespace millrace::kernels
