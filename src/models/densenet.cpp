#include <fmt/format.h>

#include <array>

#include "models/blocks.h"

namespace millrace::models {
namespace {

constexpr int64_t kGrowth = 32;
constexpr graph::WeightStart kDenseStart = {graph::WeightStart::Kind::he_fan_in};

// Normalisation comes before the convolution.
graph::Value norm_convolution(graph::Builder& net, graph::Value x, const std::string& norm,
                              const std::string& convolution, graph::ConvolutionOptions options) {
  options.start = kDenseStart;
  return net.convolution(net.relu(net.batch_norm(x, norm)), convolution, options);
}

// Makes kGrowth more channels and keeps all others.
graph::Value dense_layer(graph::Builder& net, graph::Value x, const std::string& name) {
  graph::Value y =
      norm_convolution(net, x, name + ".norm1", name + ".conv1", {.channels = 4 * kGrowth});
  y = norm_convolution(net, y, name + ".norm2", name + ".conv2",
                       {.channels = kGrowth, .kernel = 3, .padding = 1});
  return net.concat({x, y}, 1);
}

graph::Value transition(graph::Builder& net, graph::Value x, const std::string& name) {
  x = norm_convolution(net, x, name + ".norm", name + ".conv", {.channels = net.shape(x)[1] / 2});
  return net.average_pool(x, {.kernel = 2, .stride = 2}, name + ".pool");
}

}  // namespace

void densenet121(graph::Builder& net, const ModelOptions& options) {
  constexpr std::array<int, 4> kLayers = {6, 12, 24, 16};
  graph::Value x = net.image(options.batch, options.channels, options.image, options.image);
  x = net.relu(convolution_norm(
      net, x, "features.conv0", "features.norm0",
      {.channels = 64, .kernel = 7, .stride = 2, .padding = 3, .start = kDenseStart}));
  x = net.max_pool(x, {.kernel = 3, .stride = 2, .padding = 1}, "features.pool0");
  for (size_t block = 1; block <= kLayers.size(); ++block) {
    for (int layer = 1; layer <= kLayers[block - 1]; ++layer) {
      x = dense_layer(net, x, fmt::format("features.denseblock{}.denselayer{}", block, layer));
    }
    if (block < kLayers.size()) x = transition(net, x, fmt::format("features.transition{}", block));
  }
  x = net.relu(net.batch_norm(x, "features.norm5"));
  x = net.linear(net.flatten(average_to(net, x, 1, 1)), "classifier",
                 {.features = options.classes, .zero_bias = true});
  net.classify(x, {.label_smoothing = options.label_smoothing});
}

}  // namespace millrace::models
