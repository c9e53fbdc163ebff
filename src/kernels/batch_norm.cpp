// batch_norm, batch_norm_apply and batch_norm_backward on plain and channel-blocked images, with
// the activation and the residual of a fused operator done in the same pass.
#include <algorithm>
#include <cmath>

#include "kernels/reference/reference.h"
#include "kernels/support/batch_norm_planes.h"
#include "kernels/support/layout_rules.h"

namespace millrace::kernels::batch_norm {
namespace {

constexpr size_t kBehind =
    5;  // the input of a residual or of slopes, of which there is one at most

// Of an input with slopes, which are padded in `room`.
Bend bend_of(Bend::Kind kind, const Planes& planes, const KernelArguments& arguments, size_t input,
             float* room) {
  const Bend bend = {kind, room};
  if (bend.has_slopes()) pad_channels(planes, arguments.input<const float>(input), room);
  return bend;
}

class BatchNorm : public Kernel {
 public:
  explicit BatchNorm(const KernelRequest& request)
      : planes_(request.inputs[0]),
        epsilon_(request.op.attributes.number("epsilon")),
        momentum_(request.op.attributes.number("momentum")),
        bend_(bend_kind(request.op.attributes)),
        residual_(request.op.attributes.flag("residual")),
        inference_(request.op.attributes.flag("inference")),
        type_(request.inputs[0].type.dtype) {}

  // Two values per plane and channel, then the folded parameters and slopes.
  uint64_t workspace_bytes() const override {
    const int64_t values = planes_.padded_channels() * (planes_.images * 2 + 3);
    return static_cast<uint64_t>(values) * sizeof(float);
  }

  void run(const KernelArguments& arguments) override {
    const StoredNumbers x = {type_, arguments.inputs[0]};
    const auto* scale = arguments.input<const float>(1);
    const auto* bias = arguments.input<const float>(2);
    auto* running_mean = arguments.input<float>(3);
    auto* running_variance = arguments.input<float>(4);
    const StoredNumbers residual = {type_, residual_ ? arguments.inputs[kBehind] : nullptr};
    auto* mean = arguments.output<float>(1);
    auto* inverse = arguments.output<float>(2);
    const int64_t padded = planes_.padded_channels();
    auto* partial = reinterpret_cast<float*>(arguments.workspace);
    float* factor = partial + padded * planes_.images * 2;
    float* offset = factor + padded;
    const Bend bend = bend_of(bend_, planes_, arguments, kBehind, offset + padded);

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
        plane_moments(planes_, first, last, x, partial);
        for (int64_t c = begin; c < end; ++c) {
          merge(partial, c, mean, inverse, running_mean, running_variance);
        }
      }
      for (int64_t c = begin; c < last * planes_.block; ++c) {
        const bool real = c < end;
        factor[c] = real ? scale[c] * inverse[c] : 0;
        offset[c] = real ? bias[c] - mean[c] * factor[c] : 0;
      }
      apply_group(planes_, first, last, x, residual, factor, offset, bend,
                  {type_, arguments.outputs[0]});
    }
  }

 private:
  void merge(const float* partial, int64_t channel, float* mean, float* inverse,
             float* running_mean, float* running_variance) const {
    const ChannelMoments moments = merged_moments(planes_, partial, channel);
    normalise_channel(moments, planes_.values_per_channel(), epsilon_, momentum_, mean + channel,
                      inverse + channel, running_mean + channel, running_variance + channel);
  }

  Planes planes_;
  double epsilon_;
  double momentum_;
  Bend::Kind bend_;
  bool residual_;
  bool inference_;
  graph::DataType type_;
};

class BatchNormApply : public Kernel {
 public:
  explicit BatchNormApply(const KernelRequest& request)
      : planes_(request.inputs[0]),
        bend_(bend_kind(request.op.attributes)),
        residual_(request.op.attributes.flag("residual")),
        type_(request.inputs[0].type.dtype),
        output_type_(request.outputs[0].type.dtype),
        residual_type_(residual_ ? request.inputs[kBehind].type.dtype : graph::DataType::f32) {}

  uint64_t workspace_bytes() const override {
    return static_cast<uint64_t>(planes_.padded_channels()) * 3 * sizeof(float);
  }

  void run(const KernelArguments& arguments) override {
    auto* factor = reinterpret_cast<float*>(arguments.workspace);
    float* offset = factor + planes_.padded_channels();
    fold_parameters(planes_, arguments.input<const float>(1), arguments.input<const float>(2),
                    arguments.input<const float>(3), arguments.input<const float>(4), factor,
                    offset);
    apply_group(planes_, 0, planes_.blocks, {type_, arguments.inputs[0]},
                {residual_type_, residual_ ? arguments.inputs[kBehind] : nullptr}, factor, offset,
                bend_of(bend_, planes_, arguments, kBehind, offset + planes_.padded_channels()),
                {output_type_, arguments.outputs[0]});
  }

 private:
  Planes planes_;
  Bend::Kind bend_;
  bool residual_;
  graph::DataType type_;
  graph::DataType output_type_;
  graph::DataType residual_type_;
};

class BatchNormBackward : public Kernel {
 public:
  explicit BatchNormBackward(const KernelRequest& request)
      : planes_(request.inputs[1]),
        bend_(bend_kind(request.op.attributes)),
        fixed_(request.op.attributes.flag("fixed_statistics")),
        type_(request.inputs[1].type.dtype),
        gradient_type_(request.inputs[0].type.dtype) {}

  // Up to three sums per plane and channel, then six parameters per channel.
  uint64_t workspace_bytes() const override {
    const int64_t values = planes_.padded_channels() * (planes_.images * 3 + 6);
    return static_cast<uint64_t>(values) * sizeof(float);
  }

  void run(const KernelArguments& arguments) override {
    const StoredNumbers dy = {gradient_type_, arguments.inputs[0]};
    const StoredNumbers x = {type_, arguments.inputs[1]};
    const auto* mean = arguments.input<const float>(4);
    const auto* inverse = arguments.input<const float>(5);
    auto* dscale = arguments.output<float>(1);
    auto* dbias = arguments.output<float>(2);
    const int64_t padded = planes_.padded_channels();
    auto* partial = reinterpret_cast<float*>(arguments.workspace);
    float* factor = partial + padded * planes_.images * 3;
    float* offset = factor + padded;
    float* slope = offset + padded;
    float* shift = slope + padded;
    float* centre = shift + padded;
    fold_parameters(planes_, arguments.input<const float>(2), arguments.input<const float>(3), mean,
                    inverse, factor, offset);
    pad_channels(planes_, mean, centre);

    const Bend bend = bend_of(bend_, planes_, arguments, kSlopes, centre + padded);
    const GradientInputs inputs = {dy, x, centre, factor, offset, bend};
    const auto count = static_cast<double>(planes_.values_per_channel());
    const int64_t step = planes_.blocks_per_group(2);
    for (int64_t first = 0; first < planes_.blocks; first += step) {
      const int64_t last = std::min(planes_.blocks, first + step);
      sum_gradients(planes_, first, last, inputs, partial);
      for (int64_t c = first * planes_.block; c < last * planes_.block; ++c) {
        const GradientSums sums = merged_sums(planes_, inputs, partial, c);
        const bool real = c < planes_.channels;
        const double deviation = real ? inverse[c] : 0;
        const double own = fixed_ ? 0 : -factor[c] / count;  // what statistics owe to each value
        slope[c] = static_cast<float>(own * deviation * deviation * sums.weighted);
        shift[c] = static_cast<float>(own * sums.plain);
        if (!real) continue;
        dscale[c] = static_cast<float>(sums.weighted * deviation);
        dbias[c] = static_cast<float>(sums.plain);
        if (bend.has_slopes()) arguments.output<float>(3)[c] = static_cast<float>(sums.sloped);
      }
      apply_gradients(planes_, first, last, inputs, slope, shift,
                      {gradient_type_, arguments.outputs[0]});
    }
  }

 private:
  static constexpr size_t kSlopes = 6;

  Planes planes_;
  Bend::Kind bend_;
  bool fixed_;
  graph::DataType type_;
  graph::DataType gradient_type_;
};

template <typename Implementation, size_t kImage>
std::unique_ptr<Kernel> create(const KernelRequest& request, std::string* refusal) {
  if (!is_in_planes(request, kImage, refusal)) return nullptr;
  return std::make_unique<Implementation>(request);
}

LayoutWish follow_first(const KernelRequest& request) { return follow_channels(request, 0); }
LayoutWish follow_second(const KernelRequest& request) { return follow_channels(request, 1); }

}  // namespace

std::vector<KernelFamily> kernels() {
  return {{"batch_norm",
           {{"planes", create<BatchNorm, 0>, true}, {"reference", reference_batch_norm}},
           follow_first},
          {"batch_norm_apply",
           {{"planes", create<BatchNormApply, 0>, true}, {"reference", reference_batch_norm_apply}},
           follow_first},
          {"batch_norm_backward",
           {{"planes", create<BatchNormBackward, 1>, true},
            {"reference", reference_batch_norm_backward}},
           follow_second}};
}

}  // namespace millrace::kernels::batch_norm
