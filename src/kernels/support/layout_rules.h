// Layout rules shared by the kernel families.
#pragma once

#include "kernels/kernel.h"

namespace millrace::kernels {

// Every tensor of rank `rank of input leader` takes the layout that input `leader` has now;
// tensors of another rank are plain.
LayoutWish follow_input(const KernelRequest& request, size_t leader);

// As follow_input with leader 0, but if input `stored` is in 16 bits it leads: reorders are for
// float32.
LayoutWish follow_stored(const KernelRequest& request, size_t stored);

// As follow_input, but only "plain" and "channels in blocks" are accepted; anything else
// becomes plain.
LayoutWish follow_channels(const KernelRequest& request, size_t leader);

}  // namespace millrace::kernels
