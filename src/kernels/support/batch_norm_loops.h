// Inner loops of batch normalisation over one plane: one image, one block of channels.
//
// A plane holds `pixels` x `block` values; block is 1 (plain layout), 8 or 16 (channels in
// blocks). Channel parameters are arrays of `block` values. Sums are taken in a fixed order.
#pragma once

#include <cstdint>

#include "kernels/support/elements.h"

namespace millrace::kernels {

// What is done to a normalised value. That of prelu has a slope below zero for each channel.
struct Bend {
  enum class Kind : uint8_t { none, relu, relu6, prelu, silu, hardswish };

  Kind kind = Kind::none;
  const float* slopes = nullptr;

  bool has_slopes() const { return kind == Kind::prelu; }
  Bend from(int64_t channel) const { return {kind, has_slopes() ? slopes + channel : nullptr}; }
};

// Mean over the pixels and sum of squared deviations from it, per channel.
void plane_statistics(const float* x, int64_t pixels, int64_t block, float* mean,
                      float* deviations);
void plane_statistics(const Bf16* x, int64_t pixels, int64_t block, float* mean, float* deviations);

// y = bend(x * factor + offset + residual); x and residual may be y itself, and residual null. If
// it goes `far`, y is aligned to 64 bytes.
void plane_apply(const float* x, const float* residual, const float* factor, const float* offset,
                 const Bend& bend, int64_t pixels, int64_t block, bool far, float* y);
void plane_apply(const Bf16* x, const Bf16* residual, const float* factor, const float* offset,
                 const Bend& bend, int64_t pixels, int64_t block, bool far, Bf16* y);

// Per channel: the sum of dy and of dy * (x - mean), where dy is what is left of it in front of the
// bend; of a bend with slopes also their gradient.
void plane_gradient_sums(const float* dy, const float* x, const float* mean, const float* factor,
                         const float* offset, const Bend& bend, int64_t pixels, int64_t block,
                         float* sum, float* weighted_sum, float* slope_sum);
void plane_gradient_sums(const Bf16* dy, const Bf16* x, const float* mean, const float* factor,
                         const float* offset, const Bend& bend, int64_t pixels, int64_t block,
                         float* sum, float* weighted_sum, float* slope_sum);

// dx = dy * factor + (x - mean) * slope + shift, with dy as above; dx may be dy.
void plane_gradient(const float* dy, const float* x, const float* mean, const float* factor,
                    const float* offset, const float* slope, const float* shift, const Bend& bend,
                    int64_t pixels, int64_t block, float* dx);
void plane_gradient(const Bf16* dy, const Bf16* x, const float* mean, const float* factor,
                    const float* offset, const float* slope, const float* shift, const Bend& bend,
                    int64_t pixels, int64_t block, Bf16* dx);

}  // namespace millrace::kernels
