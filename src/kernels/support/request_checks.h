// What an implementation asks of a request before it serves it. Each returns false and fills in
// `refusal` where the answer is no.
#pragma once

#include <string>

#include "kernels/kernel.h"

namespace millrace::kernels {

// Every tensor is plain.
bool is_plain(const KernelRequest& request, std::string* refusal);

// Every tensor of the rank of input 0 has its layout and every other is plain, so that one
// position means one element in all of them.
bool is_uniform(const KernelRequest& request, std::string* refusal);

// As is_uniform, and the layout is plain or has channels in blocks of at most 64.
bool is_channelwise(const KernelRequest& request, std::string* refusal);

// Storage of the tensor holds more than its elements.
bool is_padded(const TensorSpec& tensor);

}  // namespace millrace::kernels
