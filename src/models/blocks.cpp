#include "models/blocks.h"

namespace millrace::models {
namespace {

graph::Value short_cut(graph::Builder& net, graph::Value x, const std::string& name,
                       int64_t channels, int64_t stride) {
  if (stride == 1 && net.shape(x)[1] == channels) return x;
  return convolution_norm(net, x, name + ".downsample.0", name + ".downsample.1",
                          {.channels = channels, .stride = stride});
}

}  // namespace

graph::Value convolution_norm(graph::Builder& net, graph::Value x, const std::string& convolution,
                              const std::string& norm, const graph::ConvolutionOptions& options,
                              const graph::BatchNormOptions& norm_options) {
  return net.batch_norm(net.convolution(x, convolution, options), norm, norm_options);
}

graph::Value active_convolution(graph::Builder& net, graph::Value x, const std::string& name,
                                graph::ConvolutionOptions options, Activation activation,
                                const graph::BatchNormOptions& norm_options) {
  options.padding = (options.kernel - 1) / 2;
  return (net.*
          activation)(convolution_norm(net, x, name + ".0", name + ".1", options, norm_options));
}

graph::Value squeeze_excitation(graph::Builder& net, graph::Value x, const std::string& name,
                                int64_t squeezed, Activation inner, Activation gate) {
  graph::Value y = net.convolution(average_to(net, x, 1, 1), name + ".fc1",
                                   {.channels = squeezed, .bias = true});
  y = net.convolution((net.*inner)(y), name + ".fc2", {.channels = net.shape(x)[1], .bias = true});
  return net.scale_channels(x, (net.*gate)(y));
}

graph::Value basic_block(graph::Builder& net, graph::Value x, const std::string& name,
                         int64_t channels, int64_t stride) {
  graph::Value y =
      convolution_norm(net, x, name + ".conv1", name + ".bn1",
                       {.channels = channels, .kernel = 3, .stride = stride, .padding = 1});
  y = convolution_norm(net, net.relu(y), name + ".conv2", name + ".bn2",
                       {.channels = channels, .kernel = 3, .padding = 1});
  return net.relu(net.add(y, short_cut(net, x, name, channels, stride)));
}

graph::Value bottleneck(graph::Builder& net, graph::Value x, const std::string& name,
                        const Bottleneck& options) {
  graph::Value y =
      convolution_norm(net, x, name + ".conv1", name + ".bn1", {.channels = options.inner});
  y = convolution_norm(net, net.relu(y), name + ".conv2", name + ".bn2",
                       {.channels = options.inner,
                        .kernel = 3,
                        .stride = options.stride,
                        .padding = 1,
                        .groups = options.groups});
  y = convolution_norm(net, net.relu(y), name + ".conv3", name + ".bn3",
                       {.channels = options.channels});
  return net.relu(net.add(y, short_cut(net, x, name, options.channels, options.stride)));
}

graph::Value average_to(graph::Builder& net, graph::Value x, int64_t height, int64_t width) {
  const graph::Shape& shape = net.shape(x);
  if (shape[2] == height && shape[3] == width) return x;
  if (height == 1 && width == 1) return net.global_average_pool(x);
  // With a name of its own, as layers that are counted should be called the same with any image.
  return net.adaptive_average_pool(x, height, width, "avgpool");
}

}  // namespace millrace::models
