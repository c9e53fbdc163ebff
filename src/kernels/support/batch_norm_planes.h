// Batch normalisation over a whole tensor, plane by plane.
//
// A tensor is worked through in groups of channel blocks small enough to stay in the last cache
// between the pass that sums and the pass that writes. Every sum is taken per plane (one image,
// one block) and the planes are merged in order, so the result does not depend on the team.
#pragma once

#include <algorithm>
#include <string>

#include "base/parallel.h"
#include "kernels/kernel.h"
#include "kernels/support/batch_norm_loops.h"
#include "kernels/support/conversion.h"

namespace millrace::kernels {

// The tensor as planes: images x blocks, each of pixels x block values.
struct Planes {
  int64_t images;
  int64_t channels;
  int64_t blocks;
  int64_t pixels;
  int64_t block;

  explicit Planes(const TensorSpec& x);

  int64_t padded_channels() const { return blocks * block; }
  int64_t plane_values() const { return pixels * block; }
  int64_t values_per_channel() const { return images * pixels; }
  int64_t offset(int64_t image, int64_t index) const {
    return (image * blocks + index) * plane_values();
  }

  // Calls body(image, channel block) for every plane of a group of blocks, over the team.
  template <typename Body>
  void for_each(int64_t first, int64_t last, Body&& body) const {
    constexpr int64_t kPlaneGrain = 32768;  // values below which a group stays on one thread
    const int64_t width = last - first;
    const int64_t grain = std::max<int64_t>(1, kPlaneGrain / plane_values());
    parallel_for(images * width, grain, [&](int64_t i) { body(i / width, first + i % width); });
  }

  int64_t blocks_per_group(int64_t tensors) const;
};

// All tensors of the rank of input `x` lie as planes of 1, 8 or 16 channels, and either all are
// bf16 or all are f32 but for those inputs that the operator takes in 16 bits. The functions below
// take the same: what they write is f32, or bf16 as is what they read.
bool is_in_planes(const KernelRequest& request, size_t x, std::string* refusal);

// factor = scale * inverse deviation, offset = bias - mean * factor, zero in the padding.
void fold_parameters(const Planes& planes, const float* scale, const float* bias, const float* mean,
                     const float* inverse, float* factor, float* offset);

// A value per channel, zero in the padding.
void pad_channels(const Planes& planes, const float* values, float* padded);

// The bend that an operator's attributes name, without its slopes.
Bend::Kind bend_kind(const graph::Attributes& attributes);

// Slopes, where there are any, and other parameters are padded.
void apply_group(const Planes& planes, int64_t first, int64_t last, const StoredNumbers& x,
                 const StoredNumbers& residual, const float* factor, const float* offset,
                 const Bend& bend, const TargetNumbers& y);

// Per image two rows of padded_channels() values: means and squared deviations of the planes.
void plane_moments(const Planes& planes, int64_t first, int64_t last, const StoredNumbers& x,
                   float* partial);

struct ChannelMoments {
  double mean;
  double squares;  // of deviations from the mean
};
ChannelMoments merged_moments(const Planes& planes, const float* partial, int64_t channel);

// Sets the mean and inverse deviation of a channel of `count` values and moves its running
// statistics.
void normalise_channel(const ChannelMoments& moments, int64_t count, double epsilon,
                       double momentum, float* mean, float* inverse, float* running_mean,
                       float* running_variance);

// Of the backward pass; centre, factor, offset and slopes are padded.
struct GradientInputs {
  StoredNumbers dy;
  StoredNumbers x;
  const float* centre;
  const float* factor;
  const float* offset;
  Bend bend;

  // Sums of each channel: of dy, of dy * (x - mean), and of what slopes get.
  int64_t rows() const { return bend.has_slopes() ? 3 : 2; }
};

// Per image rows of padded_channels() values.
void sum_gradients(const Planes& planes, int64_t first, int64_t last, const GradientInputs& inputs,
                   float* partial);

struct GradientSums {
  double plain;
  double weighted;
  double sloped;
};
GradientSums merged_sums(const Planes& planes, const GradientInputs& inputs, const float* partial,
                         int64_t channel);

// dx = dy * factor + (x - mean) * slope + shift.
void apply_gradients(const Planes& planes, int64_t first, int64_t last,
                     const GradientInputs& inputs, const float* slope, const float* shift,
                     const TargetNumbers& dx);

}  // namespace millrace::kernels
