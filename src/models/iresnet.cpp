#include <fmt/format.h>

#include <array>

#include "models/blocks.h"

namespace millrace::models {
namespace {

constexpr double kDropoutRate = 0.4;
constexpr graph::WeightStart kStart = {graph::WeightStart::Kind::normal, 0.1f};

// Normalisation comes first, so that nothing follows the addition.
graph::Value block(graph::Builder& net, graph::Value x, const std::string& name, int64_t channels,
                   int64_t stride) {
  graph::Value y = net.batch_norm(x, name + ".bn1");
  y = convolution_norm(net, y, name + ".conv1", name + ".bn2",
                       {.channels = channels, .kernel = 3, .padding = 1, .start = kStart});
  y = net.prelu(y, name + ".prelu");
  y = convolution_norm(
      net, y, name + ".conv2", name + ".bn3",
      {.channels = channels, .kernel = 3, .stride = stride, .padding = 1, .start = kStart});
  if (stride != 1 || net.shape(x)[1] != channels) {
    x = convolution_norm(net, x, name + ".downsample.0", name + ".downsample.1",
                         {.channels = channels, .stride = stride, .start = kStart});
  }
  return net.add(y, x);
}

graph::Value iresnet(graph::Builder& net, const ModelOptions& options,
                     const std::array<int, 4>& depths) {
  graph::Value x = net.image(options.batch, options.channels, options.image, options.image);
  x = convolution_norm(net, x, "conv1", "bn1",
                       {.channels = 64, .kernel = 3, .padding = 1, .start = kStart});
  x = net.prelu(x, "prelu");
  int64_t width = 64;
  for (size_t stage = 0; stage < depths.size(); ++stage, width *= 2) {
    for (int i = 0; i < depths[stage]; ++i) {
      x = block(net, x, fmt::format("layer{}.{}", stage + 1, i), width, i == 0 ? 2 : 1);
    }
  }
  x = net.flatten(net.batch_norm(x, "bn2"));
  if (options.dropout) x = net.dropout(x, kDropoutRate);
  x = net.linear(x, "fc", {.features = kEmbeddingFeatures});
  return net.batch_norm(x, "features", {.fixed_scale = true});
}

}  // namespace

graph::Value iresnet18(graph::Builder& net, const ModelOptions& options) {
  return iresnet(net, options, {2, 2, 2, 2});
}
graph::Value iresnet34(graph::Builder& net, const ModelOptions& options) {
  return iresnet(net, options, {3, 4, 6, 3});
}
graph::Value iresnet50(graph::Builder& net, const ModelOptions& options) {
  return iresnet(net, options, {3, 4, 14, 3});
}
graph::Value iresnet100(graph::Builder& net, const ModelOptions& options) {
  return iresnet(net, options, {3, 13, 30, 3});
}
graph::Value iresnet200(graph::Builder& net, const ModelOptions& options) {
  return iresnet(net, options, {6, 26, 60, 6});
}

}  // namespace millrace::models
