// What an update of weights reads beside weights, state and gradient.
#pragma once

#include "kernels/kernel.h"

namespace millrace::kernels {

// Behind the other inputs come the clip scale, with the attribute "has_clip", and last, with
// "has_skip", the tensor that overflow_check writes. Plain data.
struct UpdateInputs {
  bool has_clip = false;
  bool has_skip = false;
  double factor = 1;  // of the learning rate: the attribute "rate"

  static UpdateInputs of(const KernelRequest& request) {
    const graph::Attributes& attributes = request.op.attributes;
    return {attributes.flag("has_clip"), attributes.flag("has_skip"),
            attributes.has("rate") ? attributes.number("rate") : 1.0};
  }

  double rate(const KernelArguments& arguments) const {
    return factor * double{arguments.step->learning_rate};
  }

  // Whether nothing may change, because a gradient has overflowed somewhere.
  bool skips(const KernelArguments& arguments) const {
    return has_skip && arguments.input<float>(arguments.inputs.size() - 1)[0] != 0;
  }

  // What the gradient is to be multiplied by.
  float scale(const KernelArguments& arguments) const {
    const size_t behind = has_skip ? 2 : 1;
    const float clip = has_clip ? *arguments.input<float>(arguments.inputs.size() - behind) : 1.0f;
    return clip / arguments.step->loss_scale;
  }
};

}  // namespace millrace::kernels
