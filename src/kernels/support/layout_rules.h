// Layout rules shared by the kernel families.
#pragma once

#include "kernels/kernel.h"

namespace millrace {

// Every tensor of rank `rank of input leader` takes the layout that input `leader` has now;
// tensors of another rank are plain.
LayoutWish follow_input(const KernelRequest& request, size_t leader);

// As follow_input, but only "plain" and "channels in blocks" are accepted; anything else
// becomes plain.
LayoutWish follow_channels(const KernelRequest& request, size_t leader);

}  // namespace millrace
