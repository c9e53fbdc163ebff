// What own convolutions do to each value of a result while it is at hand.
#pragma once

#include "kernels/kernel.h"

namespace millrace::kernels {

// Times a factor and plus an offset of its channel, plus what a residual has in its place, then a
// ReLU. Null pointers: without.
struct Ending {
  const float* factor = nullptr;
  const float* offset = nullptr;
  const float* residual = nullptr;
  bool relu = false;

  bool any() const { return factor != nullptr || offset != nullptr || residual != nullptr || relu; }
};

// Which of them a convolution has: a bias, or a factor and an offset and perhaps a residual. They
// are its inputs behind the weights, in this order.
struct EndingInputs {
  bool bias = false;
  bool norm = false;
  bool residual = false;
  bool relu = false;

  bool any() const { return bias || norm || residual || relu; }
  Ending of(const KernelArguments& arguments) const {
    Ending ending;
    size_t next = 2;
    if (norm) ending.factor = arguments.input<const float>(next++);
    if (norm || bias) ending.offset = arguments.input<const float>(next++);
    if (residual) ending.residual = arguments.input<const float>(next);
    ending.relu = relu;
    return ending;
  }
};

}  // namespace millrace::kernels
