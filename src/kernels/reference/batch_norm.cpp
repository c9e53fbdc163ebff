#include <algorithm>
#include <cmath>
#include <string>

#include "kernels/convolution_problem.h"
#include "kernels/reference/reference.h"
#include "kernels/support/conversion.h"
#include "kernels/support/function_kernel.h"
#include "kernels/support/request_checks.h"

namespace millrace::kernels {
namespace {

// A tensor N,C,... whose statistics are taken channel by channel.
struct BatchNormGeometry {
  int64_t batch, channels, spatial;

  double samples() const { return static_cast<double>(batch * spatial); }

  template <typename Body>
  void each_of_channel(int64_t c, Body&& body) const {
    for (int64_t n = 0; n < batch; ++n) {
      for (int64_t s = 0; s < spatial; ++s) body((n * channels + c) * spatial + s);
    }
  }
};

BatchNormGeometry batch_norm_geometry(const graph::Shape& shape) {
  return {shape.at(0), shape.at(1), graph::elements_of(shape) / (shape[0] * shape[1])};
}

double logistic(double z) { return 1 / (1 + std::exp(-z)); }

// What an operator does to normalised values.
struct PlainBend {
  bool relu;
  std::string name;

  explicit PlainBend(const graph::Attributes& attributes)
      : relu(attributes.flag("relu")),
        name(attributes.has("bend") ? attributes.text("bend") : std::string()) {}

  bool has_slopes() const { return name == "prelu"; }
  double slope(const KernelArguments& a, size_t input, int64_t channel) const {
    return has_slopes() ? a.input<float>(input)[channel] : 0.0;
  }
  double value(double z, double slope) const {
    if (has_slopes()) return z > 0 ? z : slope * z;
    if (name == "relu6") return z < 0 ? 0 : z > 6 ? 6 : z;
    if (name == "silu") return z * logistic(z);
    if (name == "hardswish") return z * std::clamp((z + 3) / 6, 0.0, 1.0);
    return relu && z < 0 ? 0 : z;
  }
  double derivative(double z, double slope) const {
    if (has_slopes()) return z > 0 ? 1 : slope;
    if (name == "relu6") return z > 0 && z < 6 ? 1 : 0;
    if (name == "silu") return logistic(z) + z * logistic(z) * logistic(-z);
    if (name == "hardswish") return z < -3 ? 0 : z > 3 ? 1 : (2 * z + 3) / 6;
    return relu && z <= 0 ? 0 : 1;
  }
};

void normalize(const BatchNormGeometry& g, int64_t c, const StoredNumbers& x, double mean,
               double inverse, double scale, double bias, const StoredNumbers& residual,
               const PlainBend& bend, double slope, float* y) {
  g.each_of_channel(c, [&](int64_t i) {
    double value = (x[i] - mean) * inverse * scale + bias;
    if (residual.data != nullptr) value += residual[i];
    y[i] = static_cast<float>(bend.value(value, slope));
  });
}

}  // namespace

std::unique_ptr<Kernel> reference_batch_norm(const KernelRequest& request, std::string* refusal) {
  if (!is_plain(request, refusal)) return nullptr;
  const graph::Attributes& attributes = request.op.attributes;
  const BatchNormGeometry g = batch_norm_geometry(request.inputs[0].type.shape);
  const double epsilon = attributes.number("epsilon");
  const double momentum = attributes.number("momentum");
  const PlainBend bend(attributes);
  const bool inference = attributes.flag("inference");
  const bool residual = attributes.flag("residual");
  return make_function_kernel([=](const KernelArguments& a) {
    const float* x = a.input<float>(0);
    for (int64_t c = 0; c < g.channels; ++c) {
      float& running_mean = a.input<float>(3)[c];
      float& running_variance = a.input<float>(4)[c];
      double mean = running_mean;
      double variance = running_variance;
      if (!inference) {
        double sum = 0;
        g.each_of_channel(c, [&](int64_t i) { sum += x[i]; });
        mean = sum / g.samples();
        double squares = 0;
        g.each_of_channel(c, [&](int64_t i) { squares += (x[i] - mean) * (x[i] - mean); });
        variance = squares / g.samples();
        const double unbiased = squares / (g.samples() > 1 ? g.samples() - 1 : 1);
        running_mean = static_cast<float>((1 - momentum) * running_mean + momentum * mean);
        running_variance =
            static_cast<float>((1 - momentum) * running_variance + momentum * unbiased);
      }
      const double inverse = 1 / std::sqrt(variance + epsilon);
      a.output<float>(1)[c] = static_cast<float>(mean);
      a.output<float>(2)[c] = static_cast<float>(inverse);
      normalize(g, c, {graph::DataType::f32, a.inputs[0]}, mean, inverse, a.input<float>(1)[c],
                a.input<float>(2)[c], {graph::DataType::f32, residual ? a.inputs[5] : nullptr},
                bend, bend.slope(a, 5, c), a.output<float>(0));
    }
  });
}

// The inputs of the norm follow the convolution's; it has no statistics but running ones.
std::unique_ptr<Kernel> reference_normalised_convolution(const KernelRequest& request,
                                                         std::string* refusal) {
  if (!is_plain(request, refusal)) return nullptr;
  constexpr size_t kBehind = 6;
  const graph::Operator alone = convolution_alone(request.op);
  const std::shared_ptr<Kernel> convolution = reference_convolution(
      {alone, {request.inputs[0], request.inputs[1]}, request.outputs, request.options}, refusal);
  const BatchNormGeometry g = batch_norm_geometry(request.outputs[0].type.shape);
  const double epsilon = request.op.attributes.number("epsilon");
  const PlainBend bend(request.op.attributes);
  const bool residual = request.op.attributes.flag("residual");
  return make_function_kernel(
      [=](const KernelArguments& a) {
        convolution->run({a.inputs.first(2), a.outputs, a.workspace, a.step});
        for (int64_t c = 0; c < g.channels; ++c) {
          normalize(g, c, {graph::DataType::f32, a.outputs[0]}, a.input<float>(4)[c],
                    1 / std::sqrt(a.input<float>(5)[c] + epsilon), a.input<float>(2)[c],
                    a.input<float>(3)[c],
                    {graph::DataType::f32, residual ? a.inputs[kBehind] : nullptr}, bend,
                    bend.slope(a, kBehind, c), a.output<float>(0));
        }
      },
      convolution->workspace_bytes());
}

std::unique_ptr<Kernel> reference_batch_norm_apply(const KernelRequest& request,
                                                   std::string* refusal) {
  if (!is_plain(request, refusal)) return nullptr;
  const BatchNormGeometry g = batch_norm_geometry(request.inputs[0].type.shape);
  const PlainBend bend(request.op.attributes);
  const bool residual = request.op.attributes.flag("residual");
  const graph::DataType type = request.inputs[0].type.dtype;
  const graph::DataType residual_type =
      residual ? request.inputs[5].type.dtype : graph::DataType::f32;
  return make_function_kernel([=](const KernelArguments& a) {
    for (int64_t c = 0; c < g.channels; ++c) {
      normalize(g, c, {type, a.inputs[0]}, a.input<float>(3)[c], a.input<float>(4)[c],
                a.input<float>(1)[c], a.input<float>(2)[c],
                {residual_type, residual ? a.inputs[5] : nullptr}, bend, bend.slope(a, 5, c),
                a.output<float>(0));
    }
  });
}

std::unique_ptr<Kernel> reference_batch_norm_backward(const KernelRequest& request,
                                                      std::string* refusal) {
  if (!is_plain(request, refusal)) return nullptr;
  const BatchNormGeometry g = batch_norm_geometry(request.inputs[0].type.shape);
  const PlainBend bend(request.op.attributes);
  const bool fixed = request.op.attributes.flag("fixed_statistics");
  const graph::DataType type = request.inputs[1].type.dtype;
  return make_function_kernel([=](const KernelArguments& a) {
    const StoredNumbers x = {type, a.inputs[1]};
    for (int64_t c = 0; c < g.channels; ++c) {
      const double scale = a.input<float>(2)[c];
      const double bias = a.input<float>(3)[c];
      const double mean = a.input<float>(4)[c];
      const double inverse = a.input<float>(5)[c];
      const double slope = bend.slope(a, 6, c);
      const auto normal = [&](int64_t i) { return (x[i] - mean) * inverse * scale + bias; };
      const auto gradient = [&](int64_t i) {
        return a.input<float>(0)[i] * bend.derivative(normal(i), slope);
      };
      double sum = 0;
      double products = 0;
      double sloped = 0;
      g.each_of_channel(c, [&](int64_t i) {
        if (!(normal(i) > 0)) sloped += a.input<float>(0)[i] * normal(i);
        sum += gradient(i);
        products += gradient(i) * (x[i] - mean) * inverse;
      });
      g.each_of_channel(c, [&](int64_t i) {
        const double by_statistics =
            fixed ? 0 : (sum + (x[i] - mean) * inverse * products) / g.samples();
        a.output<float>(0)[i] = static_cast<float>((gradient(i) - by_statistics) * scale * inverse);
      });
      a.output<float>(1)[c] = static_cast<float>(products);
      a.output<float>(2)[c] = static_cast<float>(sum);
      if (bend.has_slopes()) a.output<float>(3)[c] = static_cast<float>(sloped);
    }
  });
}

}  // namespace millrace::kernels
