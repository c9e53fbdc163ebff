// batch_norm, batch_norm_apply and batch_norm_backward on plain and channel-blocked images, with
// the ReLU and the residual of a fused operator done in the same pass.
//
// A tensor is worked through in groups of channel blocks small enough to stay in the last cache
// between the pass that sums and the pass that writes. Every sum is taken per plane (one image,
// one block) and the planes are merged in order, so the result does not depend on the team.
#include <algorithm>
#include <cmath>

#include "base/parallel.h"
#include "kernels/reference/reference.h"
#include "kernels/support/batch_norm_loops.h"
#include "kernels/support/layout_rules.h"

namespace millrace {
namespace {

constexpr int64_t kGroupBytes = 8 << 20;
constexpr int64_t kPlaneGrain = 32768;  // values below which a group stays on one thread

// The tensor as planes: images x blocks, each of pixels x block values.
struct Planes {
  int64_t images;
  int64_t channels;
  int64_t blocks;
  int64_t pixels;
  int64_t block;

  explicit Planes(const TensorSpec& x)
      : images(x.type.shape[0]),
        channels(x.type.shape[1]),
        blocks(1),
        pixels(1),
        block(x.layout.channel_block()) {
    for (size_t axis = 2; axis < x.type.shape.size(); ++axis) pixels *= x.type.shape[axis];
    blocks = (channels + block - 1) / block;
  }

  int64_t padded_channels() const { return blocks * block; }
  int64_t plane_values() const { return pixels * block; }
  int64_t offset(int64_t image, int64_t index) const {
    return (image * blocks + index) * plane_values();
  }

  // Calls body(image, channel block) for every plane of a group of blocks, over the team.
  template <typename Body>
  void for_each(int64_t first, int64_t last, Body&& body) const {
    const int64_t width = last - first;
    const int64_t grain = std::max<int64_t>(1, kPlaneGrain / plane_values());
    parallel_for(images * width, grain, [&](int64_t i) { body(i / width, first + i % width); });
  }

  int64_t blocks_per_group(int64_t tensors) const {
    const int64_t bytes = images * plane_values() * 4 * tensors;
    return std::clamp<int64_t>(kGroupBytes / std::max<int64_t>(bytes, 1), 1, blocks);
  }
};

bool serves(const KernelRequest& request, size_t x, std::string* refusal) {
  const Layout& layout = request.inputs[x].layout;
  const int64_t block = layout.channel_block();
  const bool same = std::all_of(
      request.inputs.begin(), request.inputs.end(),
      [&](const auto& spec) { return spec.type.shape.size() == 1 || spec.layout == layout; });
  if (same && request.outputs[0].layout == layout && (block == 1 || block == 8 || block == 16) &&
      request.inputs[x].type.dtype == DataType::f32) {
    return true;
  }
  *refusal = "needs f32 tensors, all plain or all with channels in blocks of 8 or 16";
  return false;
}

// factor = scale * inverse deviation, offset = bias - mean * factor, zero in the padding.
void fold_parameters(const Planes& planes, const float* scale, const float* bias, const float* mean,
                     const float* inverse, float* factor, float* offset) {
  for (int64_t c = 0; c < planes.padded_channels(); ++c) {
    const bool real = c < planes.channels;
    factor[c] = real ? scale[c] * inverse[c] : 0;
    offset[c] = real ? bias[c] - mean[c] * factor[c] : 0;
  }
}

void apply_group(const Planes& planes, int64_t first, int64_t last, const float* x,
                 const float* residual, const float* factor, const float* offset, bool relu,
                 float* y) {
  planes.for_each(first, last, [&](int64_t image, int64_t index) {
    const int64_t at = planes.offset(image, index);
    plane_apply(x + at, residual != nullptr ? residual + at : nullptr,
                factor + index * planes.block, offset + index * planes.block, relu, planes.pixels,
                planes.block, y + at);
  });
}

class BatchNorm : public Kernel {
 public:
  explicit BatchNorm(const KernelRequest& request)
      : planes_(request.inputs[0]),
        epsilon_(request.op.attributes.number("epsilon")),
        momentum_(request.op.attributes.number("momentum")),
        relu_(request.op.attributes.flag("relu")),
        residual_(request.op.attributes.flag("residual")),
        inference_(request.op.attributes.flag("inference")) {}

  // Two values per plane and channel, then the folded parameters.
  uint64_t workspace_bytes() const override {
    const int64_t values = planes_.padded_channels() * (planes_.images * 2 + 2);
    return static_cast<uint64_t>(values) * sizeof(float);
  }

  void run(const KernelArguments& arguments) override {
    const auto* x = arguments.input<const float>(0);
    const auto* scale = arguments.input<const float>(1);
    const auto* bias = arguments.input<const float>(2);
    auto* running_mean = arguments.input<float>(3);
    auto* running_variance = arguments.input<float>(4);
    const auto* residual = residual_ ? arguments.input<const float>(5) : nullptr;
    auto* y = arguments.output<float>(0);
    auto* mean = arguments.output<float>(1);
    auto* inverse = arguments.output<float>(2);
    const int64_t padded = planes_.padded_channels();
    auto* partial = reinterpret_cast<float*>(arguments.workspace);
    float* factor = partial + padded * planes_.images * 2;
    float* offset = factor + padded;

    const int64_t step = planes_.blocks_per_group(1);
    for (int64_t first = 0; first < planes_.blocks; first += step) {
      const int64_t last = std::min(planes_.blocks, first + step);
      const int64_t begin = first * planes_.block;
      const int64_t end = std::min(planes_.channels, last * planes_.block);
      if (inference_) {
        for (int64_t c = begin; c < end; ++c) {
          mean[c] = running_mean[c];
          inverse[c] = static_cast<float>(1.0 / std::sqrt(running_variance[c] + epsilon_));
        }
      } else {
        statistics(first, last, x, partial);
        for (int64_t c = begin; c < end; ++c) {
          merge(partial, c, mean, inverse, running_mean, running_variance);
        }
      }
      for (int64_t c = begin; c < last * planes_.block; ++c) {
        const bool real = c < end;
        factor[c] = real ? scale[c] * inverse[c] : 0;
        offset[c] = real ? bias[c] - mean[c] * factor[c] : 0;
      }
      apply_group(planes_, first, last, x, residual, factor, offset, relu_, y);
    }
  }

 private:
  void statistics(int64_t first, int64_t last, const float* x, float* partial) const {
    const int64_t padded = planes_.padded_channels();
    planes_.for_each(first, last, [&](int64_t image, int64_t index) {
      float* means = partial + image * padded * 2 + index * planes_.block;
      plane_statistics(x + planes_.offset(image, index), planes_.pixels, planes_.block, means,
                       means + padded);
    });
  }

  void merge(const float* partial, int64_t channel, float* mean, float* inverse,
             float* running_mean, float* running_variance) const {
    const int64_t padded = planes_.padded_channels();
    double centre = 0;
    for (int64_t image = 0; image < planes_.images; ++image) {
      centre += partial[image * padded * 2 + channel];
    }
    centre /= static_cast<double>(planes_.images);
    double squares = 0;
    for (int64_t image = 0; image < planes_.images; ++image) {
      const double away = partial[image * padded * 2 + channel] - centre;
      squares += partial[image * padded * 2 + padded + channel] +
                 away * away * static_cast<double>(planes_.pixels);
    }
    const auto count = static_cast<double>(planes_.images * planes_.pixels);
    const double variance = squares / count;
    mean[channel] = static_cast<float>(centre);
    inverse[channel] = static_cast<float>(1.0 / std::sqrt(variance + epsilon_));
    const double unbiased = count > 1 ? squares / (count - 1) : variance;
    running_mean[channel] += static_cast<float>(momentum_ * (centre - running_mean[channel]));
    running_variance[channel] +=
        static_cast<float>(momentum_ * (unbiased - running_variance[channel]));
  }

  Planes planes_;
  double epsilon_;
  double momentum_;
  bool relu_;
  bool residual_;
  bool inference_;
};

class BatchNormApply : public Kernel {
 public:
  explicit BatchNormApply(const KernelRequest& request)
      : planes_(request.inputs[0]),
        relu_(request.op.attributes.flag("relu")),
        residual_(request.op.attributes.flag("residual")) {}

  uint64_t workspace_bytes() const override {
    return static_cast<uint64_t>(planes_.padded_channels()) * 2 * sizeof(float);
  }

  void run(const KernelArguments& arguments) override {
    auto* factor = reinterpret_cast<float*>(arguments.workspace);
    float* offset = factor + planes_.padded_channels();
    fold_parameters(planes_, arguments.input<const float>(1), arguments.input<const float>(2),
                    arguments.input<const float>(3), arguments.input<const float>(4), factor,
                    offset);
    apply_group(planes_, 0, planes_.blocks, arguments.input<const float>(0),
                residual_ ? arguments.input<const float>(5) : nullptr, factor, offset, relu_,
                arguments.output<float>(0));
  }

 private:
  Planes planes_;
  bool relu_;
  bool residual_;
};

class BatchNormBackward : public Kernel {
 public:
  explicit BatchNormBackward(const KernelRequest& request)
      : planes_(request.inputs[1]), relu_(request.op.attributes.flag("relu")) {}

  // Two sums per plane and channel, then five parameters per channel.
  uint64_t workspace_bytes() const override {
    const int64_t values = planes_.padded_channels() * (planes_.images * 2 + 5);
    return static_cast<uint64_t>(values) * sizeof(float);
  }

  void run(const KernelArguments& arguments) override {
    const auto* dy = arguments.input<const float>(0);
    const auto* x = arguments.input<const float>(1);
    const auto* mean = arguments.input<const float>(4);
    const auto* inverse = arguments.input<const float>(5);
    auto* dx = arguments.output<float>(0);
    auto* dscale = arguments.output<float>(1);
    auto* dbias = arguments.output<float>(2);
    const int64_t padded = planes_.padded_channels();
    auto* partial = reinterpret_cast<float*>(arguments.workspace);
    float* factor = partial + padded * planes_.images * 2;
    float* offset = factor + padded;
    float* slope = offset + padded;
    float* shift = slope + padded;
    float* centre = shift + padded;
    fold_parameters(planes_, arguments.input<const float>(2), arguments.input<const float>(3), mean,
                    inverse, factor, offset);
    for (int64_t c = 0; c < padded; ++c) centre[c] = c < planes_.channels ? mean[c] : 0;

    const auto count = static_cast<double>(planes_.images * planes_.pixels);
    const int64_t step = planes_.blocks_per_group(2);
    for (int64_t first = 0; first < planes_.blocks; first += step) {
      const int64_t last = std::min(planes_.blocks, first + step);
      planes_.for_each(first, last, [&](int64_t image, int64_t index) {
        const int64_t at = planes_.offset(image, index);
        const int64_t c = index * planes_.block;
        float* sums = partial + image * padded * 2 + c;
        plane_gradient_sums(dy + at, x + at, centre + c, factor + c, offset + c, relu_,
                            planes_.pixels, planes_.block, sums, sums + padded);
      });
      for (int64_t c = first * planes_.block; c < last * planes_.block; ++c) {
        double sum = 0;
        double weighted = 0;
        for (int64_t image = 0; image < planes_.images; ++image) {
          sum += partial[image * padded * 2 + c];
          weighted += partial[image * padded * 2 + padded + c];
        }
        const bool real = c < planes_.channels;
        const double deviation = real ? inverse[c] : 0;
        slope[c] = static_cast<float>(-factor[c] * deviation * deviation * weighted / count);
        shift[c] = static_cast<float>(-factor[c] * sum / count);
        if (!real) continue;
        dscale[c] = static_cast<float>(weighted * deviation);
        dbias[c] = static_cast<float>(sum);
      }
      planes_.for_each(first, last, [&](int64_t image, int64_t index) {
        const int64_t at = planes_.offset(image, index);
        const int64_t c = index * planes_.block;
        plane_gradient(dy + at, x + at, centre + c, factor + c, offset + c, slope + c, shift + c,
                       relu_, planes_.pixels, planes_.block, dx + at);
      });
    }
  }

 private:
  Planes planes_;
  bool relu_;
};

template <typename Implementation, size_t kImage>
std::unique_ptr<Kernel> create(const KernelRequest& request, std::string* refusal) {
  if (!serves(request, kImage, refusal)) return nullptr;
  return std::make_unique<Implementation>(request);
}

LayoutWish follow_first(const KernelRequest& request) { return follow_channels(request, 0); }
LayoutWish follow_second(const KernelRequest& request) { return follow_channels(request, 1); }

}  // namespace

std::vector<KernelFamily> batch_norm_kernels() {
  return {{"batch_norm",
           {{"planes", create<BatchNorm, 0>}, {"reference", reference_batch_norm}},
           follow_first},
          {"batch_norm_apply",
           {{"planes", create<BatchNormApply, 0>}, {"reference", reference_batch_norm_apply}},
           follow_first},
          {"batch_norm_backward",
           {{"planes", create<BatchNormBackward, 1>}, {"reference", reference_batch_norm_backward}},
           follow_second}};
}

}  // namespace millrace
