// Batch normalisation over the samples of several devices, in halves between which statistics are
// exchanged. The loops are those of batch_norm.

#include "kernels/support/batch_norm_planes.h"
#include "kernels/support/function_kernel.h"
#include "kernels/support/layout_rules.h"

namespace millrace::kernels::batch_norm_synchronised {
namespace {

uint64_t bytes_for(const Planes& planes, int64_t rows) {
  return static_cast<uint64_t>(planes.padded_channels() * rows) * sizeof(float);
}

std::unique_ptr<Kernel> make_statistics(const KernelRequest& request, std::string* refusal) {
  if (!is_in_planes(request, 0, refusal)) return nullptr;
  const Planes planes(request.inputs[0]);
  const graph::DataType type = request.inputs[0].type.dtype;
  return make_function_kernel(
      [planes, type](const KernelArguments& a) {
        auto* partial = reinterpret_cast<float*>(a.workspace);
        plane_moments(planes, 0, planes.blocks, {type, a.inputs[0]}, partial);
        for (int64_t c = 0; c < planes.channels; ++c) {
          const ChannelMoments moments = merged_moments(planes, partial, c);
          a.output<float>(0)[c] = static_cast<float>(moments.mean);
          a.output<float>(0)[planes.channels + c] = static_cast<float>(moments.squares);
        }
      },
      bytes_for(planes, 2 * planes.images));
}

// Joins the members' moments of one channel; `counts` are the values that each has.
ChannelMoments joined_moments(const float* statistics, const std::vector<int64_t>& counts,
                              int64_t channels, int64_t channel) {
  double mean = 0;
  double total = 0;
  for (size_t m = 0; m < counts.size(); ++m) {
    const float* own = statistics + static_cast<int64_t>(m) * 2 * channels;
    mean += static_cast<double>(counts[m]) * own[channel];
    total += static_cast<double>(counts[m]);
  }
  mean /= total;
  double squares = 0;
  for (size_t m = 0; m < counts.size(); ++m) {
    const float* own = statistics + static_cast<int64_t>(m) * 2 * channels;
    const double away = own[channel] - mean;
    squares += own[channels + channel] + away * away * static_cast<double>(counts[m]);
  }
  return {mean, squares};
}

std::unique_ptr<Kernel> make_forward(const KernelRequest& request, std::string* refusal) {
  if (!is_in_planes(request, 0, refusal)) return nullptr;
  const graph::Attributes& attributes = request.op.attributes;
  const Planes planes(request.inputs[0]);
  const std::vector<int64_t> counts = attributes.integers("counts");
  const double epsilon = attributes.number("epsilon");
  const double momentum = attributes.number("momentum");
  const Bend bend = {bend_kind(attributes)};
  const bool residual = attributes.flag("residual");
  const graph::DataType type = request.inputs[0].type.dtype;
  return make_function_kernel(
      [=](const KernelArguments& a) {
        int64_t total = 0;
        for (int64_t count : counts) total += count;
        for (int64_t c = 0; c < planes.channels; ++c) {
          normalise_channel(joined_moments(a.input<float>(5), counts, planes.channels, c), total,
                            epsilon, momentum, a.output<float>(1) + c, a.output<float>(2) + c,
                            a.input<float>(3) + c, a.input<float>(4) + c);
        }
        auto* factor = reinterpret_cast<float*>(a.workspace);
        float* offset = factor + planes.padded_channels();
        fold_parameters(planes, a.input<float>(1), a.input<float>(2), a.output<float>(1),
                        a.output<float>(2), factor, offset);
        apply_group(planes, 0, planes.blocks, {type, a.inputs[0]},
                    {type, residual ? a.inputs[6] : nullptr}, factor, offset, bend,
                    {type, a.outputs[0]});
      },
      bytes_for(planes, 2));
}

struct GradientTypes {
  graph::DataType dy;
  graph::DataType x;

  explicit GradientTypes(const KernelRequest& request)
      : dy(request.inputs[0].type.dtype), x(request.inputs[1].type.dtype) {}
};

// Padded parameters of the backward pass in the workspace: centre, factor, offset.
GradientInputs gradient_inputs(const Planes& planes, const KernelArguments& a, float* parameters,
                               const Bend& bend, const GradientTypes& types) {
  float* factor = parameters + planes.padded_channels();
  float* offset = factor + planes.padded_channels();
  pad_channels(planes, a.input<float>(4), parameters);
  fold_parameters(planes, a.input<float>(2), a.input<float>(3), a.input<float>(4),
                  a.input<float>(5), factor, offset);
  return {{types.dy, a.inputs[0]}, {types.x, a.inputs[1]}, parameters, factor, offset, bend};
}

std::unique_ptr<Kernel> make_backward_sums(const KernelRequest& request, std::string* refusal) {
  if (!is_in_planes(request, 1, refusal)) return nullptr;
  const Planes planes(request.inputs[1]);
  const GradientTypes types(request);
  const Bend bend = {bend_kind(request.op.attributes)};
  return make_function_kernel(
      [planes, types, bend](const KernelArguments& a) {
        auto* parameters = reinterpret_cast<float*>(a.workspace);
        float* partial = parameters + 3 * planes.padded_channels();
        const GradientInputs inputs = gradient_inputs(planes, a, parameters, bend, types);
        sum_gradients(planes, 0, planes.blocks, inputs, partial);
        for (int64_t c = 0; c < planes.channels; ++c) {
          const GradientSums sums = merged_sums(planes, inputs, partial, c);
          a.output<float>(0)[c] = static_cast<float>(sums.plain);
          a.output<float>(0)[planes.channels + c] = static_cast<float>(sums.weighted);
          a.output<float>(1)[c] = static_cast<float>(sums.weighted * a.input<float>(5)[c]);
          a.output<float>(2)[c] = static_cast<float>(sums.plain);
        }
      },
      bytes_for(planes, 3 + 2 * planes.images));
}

std::unique_ptr<Kernel> make_backward_apply(const KernelRequest& request, std::string* refusal) {
  if (!is_in_planes(request, 1, refusal)) return nullptr;
  const Planes planes(request.inputs[1]);
  const GradientTypes types(request);
  const Bend bend = {bend_kind(request.op.attributes)};
  const auto count = static_cast<double>(request.op.attributes.integer("count"));
  return make_function_kernel(
      [planes, types, bend, count](const KernelArguments& a) {
        auto* parameters = reinterpret_cast<float*>(a.workspace);
        float* slope = parameters + 3 * planes.padded_channels();
        float* shift = slope + planes.padded_channels();
        const GradientInputs inputs = gradient_inputs(planes, a, parameters, bend, types);
        const float* sums = a.input<float>(6);
        for (int64_t c = 0; c < planes.padded_channels(); ++c) {
          const bool real = c < planes.channels;
          const double deviation = real ? a.input<float>(5)[c] : 0;
          const double weighted = real ? sums[planes.channels + c] : 0;
          const double plain = real ? sums[c] : 0;
          const double factor = inputs.factor[c];
          slope[c] = static_cast<float>(-factor * deviation * deviation * weighted / count);
          shift[c] = static_cast<float>(-factor * plain / count);
        }
        apply_gradients(planes, 0, planes.blocks, inputs, slope, shift, {types.dy, a.outputs[0]});
      },
      bytes_for(planes, 5));
}

LayoutWish follow_first(const KernelRequest& request) { return follow_channels(request, 0); }
LayoutWish follow_second(const KernelRequest& request) { return follow_channels(request, 1); }

}  // namespace

std::vector<KernelFamily> kernels() {
  return {{"batch_norm_statistics", {{"planes", make_statistics, true}}, follow_first},
          {"batch_norm_synchronised", {{"planes", make_forward, true}}, follow_first},
          {"batch_norm_backward_sums", {{"planes", make_backward_sums, true}}, follow_second},
          {"batch_norm_backward_apply", {{"planes", make_backward_apply, true}}, follow_second}};
}

}  // namespace millrace::kernels::batch_norm_synchronised
