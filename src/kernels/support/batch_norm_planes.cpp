#include "kernels/support/batch_norm_planes.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/operator_definition.h"

namespace millrace::kernels {
namespace {

constexpr int64_t kMostLanes = 16;

const Bf16* halves(const StoredNumbers& numbers) {
  return reinterpret_cast<const Bf16*>(numbers.data);
}
Bf16* halves(const TargetNumbers& numbers) { return reinterpret_cast<Bf16*>(numbers.data); }

bool is_bf16(const TensorSpec& spec) {
  return spec.type.shape.size() == 1 || spec.type.dtype == graph::DataType::bf16;
}

// Computed in bf16 throughout.
bool is_all_bf16(const KernelRequest& request) {
  return std::all_of(request.inputs.begin(), request.inputs.end(), is_bf16) &&
         std::all_of(request.outputs.begin(), request.outputs.end(), is_bf16);
}

// Whether results are so many that whoever reads them finds none in the last cache: there is no use
// in bringing their lines there first. Not where they take the place of what is read, which is
// there.
bool goes_far(const Planes& planes, const StoredNumbers& x, const StoredNumbers& residual,
              const TargetNumbers& y) {
  constexpr int64_t kCaches = 32 << 20;
  constexpr size_t kLine = 64;
  const int64_t plane_bytes = planes.plane_values() * 4;
  return y.type == graph::DataType::f32 && y.data != x.data && y.data != residual.data &&
         planes.images * planes.blocks * plane_bytes > kCaches && plane_bytes % kLine == 0 &&
         reinterpret_cast<uintptr_t>(y.data) % kLine == 0;
}

}  // namespace

Planes::Planes(const TensorSpec& x)
    : images(x.type.shape[0]),
      channels(x.type.shape[1]),
      blocks(1),
      pixels(1),
      block(x.layout.channel_block()) {
  for (size_t axis = 2; axis < x.type.shape.size(); ++axis) pixels *= x.type.shape[axis];
  blocks = (channels + block - 1) / block;
}

int64_t Planes::blocks_per_group(int64_t tensors) const {
  constexpr int64_t kGroupBytes = 8 << 20;
  const int64_t bytes = images * plane_values() * 4 * tensors;
  return std::clamp<int64_t>(kGroupBytes / std::max<int64_t>(bytes, 1), 1, blocks);
}

bool is_in_planes(const KernelRequest& request, size_t x, std::string* refusal) {
  const graph::Layout& layout = request.inputs[x].layout;
  const int64_t block = layout.channel_block();
  const std::vector<int>& stored = graph::definition_of(request.op.type).stored_inputs;
  const bool all_bf16 = is_all_bf16(request);
  const auto fits = [&](const TensorSpec& spec, bool is_stored) {
    const bool is_float = spec.type.dtype == graph::DataType::f32 || all_bf16;
    const bool is_half =
        spec.type.dtype == graph::DataType::f16 || spec.type.dtype == graph::DataType::bf16;
    return (is_float || (is_stored && is_half)) &&
           (spec.type.shape.size() == 1 || spec.layout == layout);
  };
  bool all = fits(request.outputs[0], false) && (block == 1 || block == 8 || block == kMostLanes);
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    const bool is_stored =
        std::find(stored.begin(), stored.end(), static_cast<int>(i)) != stored.end();
    all = all && fits(request.inputs[i], is_stored);
  }
  if (!all)
    *refusal = "needs f32 or bf16 tensors, all plain or all with channels in blocks of 8 or 16";
  return all;
}

void fold_parameters(const Planes& planes, const float* scale, const float* bias, const float* mean,
                     const float* inverse, float* factor, float* offset) {
  for (int64_t c = 0; c < planes.padded_channels(); ++c) {
    const bool real = c < planes.channels;
    factor[c] = real ? scale[c] * inverse[c] : 0;
    offset[c] = real ? bias[c] - mean[c] * factor[c] : 0;
  }
}

void pad_channels(const Planes& planes, const float* values, float* padded) {
  for (int64_t c = 0; c < planes.padded_channels(); ++c) {
    padded[c] = c < planes.channels ? values[c] : 0;
  }
}

Bend::Kind bend_kind(const graph::Attributes& attributes) {
  if (attributes.flag("relu")) return Bend::Kind::relu;
  if (!attributes.has("bend")) return Bend::Kind::none;
  constexpr std::pair<std::string_view, Bend::Kind> kBends[] = {
      {"relu6", Bend::Kind::relu6},
      {"prelu", Bend::Kind::prelu},
      {"silu", Bend::Kind::silu},
      {"hardswish", Bend::Kind::hardswish}};
  const std::string name = attributes.text("bend");
  return std::ranges::find(kBends, name, &std::pair<std::string_view, Bend::Kind>::first)->second;
}

void apply_group(const Planes& planes, int64_t first, int64_t last, const StoredNumbers& x,
                 const StoredNumbers& residual, const float* factor, const float* offset,
                 const Bend& bend, const TargetNumbers& y) {
  const bool far = goes_far(planes, x, residual, y);
  planes.for_each(first, last, [&](int64_t image, int64_t index) {
    const int64_t at = planes.offset(image, index);
    const int64_t c = index * planes.block;
    if (y.type == graph::DataType::bf16) {
      plane_apply(halves(x.from(at)), halves(residual.from(at)), factor + c, offset + c,
                  bend.from(c), planes.pixels, planes.block, far, halves(y) + at);
      return;
    }
    in_float_parts(x.from(at), residual.from(at), planes.plane_values(), planes.block,
                   [&](int64_t begin, int64_t count, const float* values, const float* added) {
                     plane_apply(values, added, factor + c, offset + c, bend.from(c),
                                 count / planes.block, planes.block, far, y.floats() + at + begin);
                   });
  });
}

void plane_moments(const Planes& planes, int64_t first, int64_t last, const StoredNumbers& x,
                   float* partial) {
  const int64_t padded = planes.padded_channels();
  planes.for_each(first, last, [&](int64_t image, int64_t index) {
    float* means = partial + image * padded * 2 + index * planes.block;
    const StoredNumbers plane = x.from(planes.offset(image, index));
    if (x.type == graph::DataType::bf16) {
      plane_statistics(halves(plane), planes.pixels, planes.block, means, means + padded);
    } else {
      plane_statistics(plane.floats(), planes.pixels, planes.block, means, means + padded);
    }
  });
}

ChannelMoments merged_moments(const Planes& planes, const float* partial, int64_t channel) {
  const int64_t padded = planes.padded_channels();
  double centre = 0;
  for (int64_t image = 0; image < planes.images; ++image) {
    centre += partial[image * padded * 2 + channel];
  }
  centre /= static_cast<double>(planes.images);
  double squares = 0;
  for (int64_t image = 0; image < planes.images; ++image) {
    const double away = partial[image * padded * 2 + channel] - centre;
    squares += partial[image * padded * 2 + padded + channel] +
               away * away * static_cast<double>(planes.pixels);
  }
  return {centre, squares};
}

void normalise_channel(const ChannelMoments& moments, int64_t values, double epsilon,
                       double momentum, float* mean, float* inverse, float* running_mean,
                       float* running_variance) {
  const auto count = static_cast<double>(values);
  const double variance = moments.squares / count;
  *mean = static_cast<float>(moments.mean);
  *inverse = static_cast<float>(1.0 / std::sqrt(variance + epsilon));
  const double unbiased = values > 1 ? moments.squares / (count - 1) : variance;
  *running_mean += static_cast<float>(momentum * (moments.mean - *running_mean));
  *running_variance += static_cast<float>(momentum * (unbiased - *running_variance));
}

void sum_gradients(const Planes& planes, int64_t first, int64_t last, const GradientInputs& inputs,
                   float* partial) {
  const int64_t padded = planes.padded_channels();
  planes.for_each(first, last, [&](int64_t image, int64_t index) {
    const int64_t at = planes.offset(image, index);
    const int64_t c = index * planes.block;
    float* plain = partial + image * padded * inputs.rows() + c;
    float* weighted = plain + padded;
    float* sloped = inputs.bend.has_slopes() ? weighted + padded : nullptr;
    const Bend bend = inputs.bend.from(c);
    if (inputs.dy.type == graph::DataType::bf16) {
      plane_gradient_sums(halves(inputs.dy.from(at)), halves(inputs.x.from(at)), inputs.centre + c,
                          inputs.factor + c, inputs.offset + c, bend, planes.pixels, planes.block,
                          plain, weighted, sloped);
      return;
    }
    in_float_parts(inputs.x.from(at), {}, planes.plane_values(), planes.block,
                   [&](int64_t begin, int64_t count, const float* values, const float*) {
                     float sums[3][kMostLanes];
                     plane_gradient_sums(inputs.dy.floats() + at + begin, values, inputs.centre + c,
                                         inputs.factor + c, inputs.offset + c, bend,
                                         count / planes.block, planes.block, sums[0], sums[1],
                                         sums[2]);
                     for (int64_t i = 0; i < planes.block; ++i) {
                       plain[i] = begin == 0 ? sums[0][i] : plain[i] + sums[0][i];
                       weighted[i] = begin == 0 ? sums[1][i] : weighted[i] + sums[1][i];
                       if (sloped == nullptr) continue;
                       sloped[i] = begin == 0 ? sums[2][i] : sloped[i] + sums[2][i];
                     }
                   });
  });
}

GradientSums merged_sums(const Planes& planes, const GradientInputs& inputs, const float* partial,
                         int64_t channel) {
  const int64_t padded = planes.padded_channels();
  GradientSums sums = {0, 0, 0};
  for (int64_t image = 0; image < planes.images; ++image) {
    const float* rows = partial + image * padded * inputs.rows() + channel;
    sums.plain += rows[0];
    sums.weighted += rows[padded];
    if (inputs.bend.has_slopes()) sums.sloped += rows[2 * padded];
  }
  return sums;
}

void apply_gradients(const Planes& planes, int64_t first, int64_t last,
                     const GradientInputs& inputs, const float* slope, const float* shift,
                     const TargetNumbers& dx) {
  planes.for_each(first, last, [&](int64_t image, int64_t index) {
    const int64_t at = planes.offset(image, index);
    const int64_t c = index * planes.block;
    if (dx.type == graph::DataType::bf16) {
      plane_gradient(halves(inputs.dy.from(at)), halves(inputs.x.from(at)), inputs.centre + c,
                     inputs.factor + c, inputs.offset + c, slope + c, shift + c,
                     inputs.bend.from(c), planes.pixels, planes.block, halves(dx) + at);
      return;
    }
    in_float_parts(inputs.x.from(at), {}, planes.plane_values(), planes.block,
                   [&](int64_t begin, int64_t count, const float* values, const float*) {
                     plane_gradient(inputs.dy.floats() + at + begin, values, inputs.centre + c,
                                    inputs.factor + c, inputs.offset + c, slope + c, shift + c,
                                    inputs.bend.from(c), count / planes.block, planes.block,
                                    dx.floats() + at + begin);
                   });
  });
}

}  // namespace millrace::kernels
