#include <algorithm>

#include "kernels/reference/reference.h"
#include "kernels/reference/sums.h"
#include "kernels/support/function_kernel.h"
#include "kernels/support/request_checks.h"

namespace millrace::kernels {
namespace {

// A convolution with image N,I,H,W, result N,O,P,Q and weights O,I/groups,KH,KW.
struct ConvolutionGeometry {
  int64_t batch, inputs, height, width;
  int64_t outputs, result_height, result_width;
  int64_t kernel_height, kernel_width;
  int64_t stride[2], padding[2], dilation[2];
  int64_t groups;

  int64_t group_inputs() const { return inputs / groups; }
  int64_t group_outputs() const { return outputs / groups; }

  // Calls body(image, weight, result) with the positions of every product of the definition.
  template <typename Body>
  void each_product(Body&& body) const {
    for (int64_t n = 0; n < batch; ++n)
      for (int64_t o = 0; o < outputs; ++o)
        for (int64_t p = 0; p < result_height; ++p)
          for (int64_t q = 0; q < result_width; ++q)
            for (int64_t i = 0; i < group_inputs(); ++i)
              for (int64_t u = 0; u < kernel_height; ++u)
                for (int64_t v = 0; v < kernel_width; ++v) {
                  const int64_t h = p * stride[0] - padding[0] + u * dilation[0];
                  const int64_t w = q * stride[1] - padding[1] + v * dilation[1];
                  if (h < 0 || h >= height || w < 0 || w >= width) continue;
                  const int64_t channel = o / group_outputs() * group_inputs() + i;
                  body(((n * inputs + channel) * height + h) * width + w,
                       ((o * group_inputs() + i) * kernel_height + u) * kernel_width + v,
                       ((n * outputs + o) * result_height + p) * result_width + q);
                }
  }

  int64_t channel_of_result(int64_t position) const {
    return position / (result_height * result_width) % outputs;
  }
};

ConvolutionGeometry convolution_geometry(const graph::Attributes& attributes,
                                         const graph::Shape& image, const graph::Shape& result,
                                         int64_t kernel_height, int64_t kernel_width) {
  const auto& stride = attributes.integers("stride");
  const auto& padding = attributes.integers("padding");
  const auto& dilation = attributes.integers("dilation");
  return {image.at(0),
          image.at(1),
          image.at(2),
          image.at(3),
          result.at(1),
          result.at(2),
          result.at(3),
          kernel_height,
          kernel_width,
          {stride.at(0), stride.at(1)},
          {padding.at(0), padding.at(1)},
          {dilation.at(0), dilation.at(1)},
          attributes.integer("groups")};
}

}  // namespace

std::unique_ptr<Kernel> reference_convolution(const KernelRequest& request, std::string* refusal) {
  if (!is_plain(request, refusal)) return nullptr;
  const graph::Shape& weights = request.inputs.at(1).type.shape;
  const ConvolutionGeometry g =
      convolution_geometry(request.op.attributes, request.inputs[0].type.shape,
                           request.outputs[0].type.shape, weights.at(2), weights.at(3));
  const bool bias = request.inputs.size() > 2;
  const bool relu = request.op.attributes.flag("relu");
  const int64_t count = request.outputs[0].elements();
  return make_function_kernel(
      [=](const KernelArguments& a) {
        double* sums = zeroed_sums(a, count);
        g.each_product([&](int64_t image, int64_t weight, int64_t result) {
          sums[result] += static_cast<double>(a.input<float>(0)[image]) * a.input<float>(1)[weight];
        });
        for (int64_t i = 0; i < count; ++i) {
          double& sum = sums[i];
          if (bias) sum += a.input<float>(2)[g.channel_of_result(i)];
          if (relu && sum < 0) sum = 0;
        }
        store_sums(sums, count, a.output<float>(0));
      },
      bytes_of_sums(count));
}

std::unique_ptr<Kernel> reference_convolution_backward_data(const KernelRequest& request,
                                                            std::string* refusal) {
  if (!is_plain(request, refusal)) return nullptr;
  const graph::Shape& weights = request.inputs.at(1).type.shape;
  const ConvolutionGeometry g =
      convolution_geometry(request.op.attributes, request.outputs[0].type.shape,
                           request.inputs[0].type.shape, weights.at(2), weights.at(3));
  const int64_t count = request.outputs[0].elements();
  return make_function_kernel(
      [=](const KernelArguments& a) {
        double* sums = zeroed_sums(a, count);
        g.each_product([&](int64_t image, int64_t weight, int64_t result) {
          sums[image] += static_cast<double>(a.input<float>(0)[result]) * a.input<float>(1)[weight];
        });
        store_sums(sums, count, a.output<float>(0));
      },
      bytes_of_sums(count));
}

std::unique_ptr<Kernel> reference_convolution_backward_weights(const KernelRequest& request,
                                                               std::string* refusal) {
  if (!is_plain(request, refusal)) return nullptr;
  const graph::Shape& weights = request.outputs.at(0).type.shape;
  const ConvolutionGeometry g =
      convolution_geometry(request.op.attributes, request.inputs[0].type.shape,
                           request.inputs[1].type.shape, weights.at(2), weights.at(3));
  const int64_t weight_count = request.outputs[0].elements();
  const int64_t result_count = request.inputs[1].elements();
  const bool bias = request.outputs.size() > 1;
  return make_function_kernel(
      [=](const KernelArguments& a) {
        double* sums = zeroed_sums(a, weight_count);
        g.each_product([&](int64_t image, int64_t weight, int64_t result) {
          sums[weight] += static_cast<double>(a.input<float>(0)[image]) * a.input<float>(1)[result];
        });
        store_sums(sums, weight_count, a.output<float>(0));
        if (!bias) return;
        double* bias_sums = zeroed_sums(a, g.outputs);
        for (int64_t i = 0; i < result_count; ++i) {
          bias_sums[g.channel_of_result(i)] += a.input<float>(1)[i];
        }
        store_sums(bias_sums, g.outputs, a.output<float>(1));
      },
      bytes_of_sums(std::max(weight_count, g.outputs)));
}

}  // namespace millrace::kernels
