#include "models/blocks.h"

namespace millrace::models {
namespace {

// Names follow the nesting: each block's parts are "<name>.layers.<i>".
std::string part(const std::string& name, int index) {
  return name + ".layers." + std::to_string(index);
}

graph::Value linear_block(graph::Builder& net, graph::Value x, const std::string& name,
                          const graph::ConvolutionOptions& options) {
  return convolution_norm(net, x, part(name, 0), part(name, 1), options);
}

graph::Value active_block(graph::Builder& net, graph::Value x, const std::string& name,
                          const graph::ConvolutionOptions& options) {
  return net.prelu(linear_block(net, x, name, options), part(name, 2));
}

// 1x1 to `inner` channels, a 3x3 on each channel by itself, 1x1 to `channels`.
graph::Value bottleneck_by_channel(graph::Builder& net, graph::Value x, const std::string& name,
                                   int64_t inner, int64_t channels, int64_t stride) {
  x = active_block(net, x, part(name, 0), {.channels = inner});
  x = active_block(
      net, x, part(name, 1),
      {.channels = inner, .kernel = 3, .stride = stride, .padding = 1, .groups = inner});
  return linear_block(net, x, part(name, 2), {.channels = channels});
}

graph::Value residual_blocks(graph::Builder& net, graph::Value x, const std::string& name,
                             int count, int64_t inner) {
  for (int i = 0; i < count; ++i) {
    const int64_t channels = net.shape(x)[1];
    x = net.add(bottleneck_by_channel(net, x, part(name, i), inner, channels, 1), x);
  }
  return x;
}

}  // namespace

graph::Value mobilefacenet(graph::Builder& net, const ModelOptions& options) {
  graph::Value x = net.image(options.batch, options.channels, options.image, options.image);
  x = active_block(net, x, "layers.0", {.channels = 128, .kernel = 3, .stride = 2, .padding = 1});
  x = active_block(net, x, "layers.1", {.channels = 128, .kernel = 3, .padding = 1, .groups = 64});
  x = bottleneck_by_channel(net, x, "layers.2", 128, 128, 2);
  x = residual_blocks(net, x, "layers.3", 4, 128);
  x = bottleneck_by_channel(net, x, "layers.4", 256, 256, 2);
  x = residual_blocks(net, x, "layers.5", 6, 256);
  x = bottleneck_by_channel(net, x, "layers.6", 512, 256, 2);
  x = residual_blocks(net, x, "layers.7", 2, 256);
  x = active_block(net, x, "conv_sep", {.channels = 512});
  // One weight for each place of the map: 7x7 for the usual image.
  x = linear_block(net, x, "features.layers.0",
                   {.channels = 512, .kernel = net.shape(x)[2], .groups = 512});
  x = net.linear(net.flatten(x), "features.layers.2",
                 {.features = kEmbeddingFeatures,
                  .bias = false,
                  .start = {graph::WeightStart::Kind::he_fan_out}});
  return net.batch_norm(x, "features.layers.3");
}

}  // namespace millrace::models
