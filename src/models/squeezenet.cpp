#include "models/blocks.h"

namespace millrace::models {
namespace {

graph::Value started_convolution(graph::Builder& net, graph::Value x, const std::string& name,
                                 graph::ConvolutionOptions options) {
  options.bias = true;
  options.start = {graph::WeightStart::Kind::he_uniform};
  return net.relu(net.convolution(x, name, options));
}

// 1x1 to few channels, then a 1x1 and a 3x3 side by side.
graph::Value fire(graph::Builder& net, graph::Value x, const std::string& name, int64_t squeezed,
                  int64_t expanded) {
  x = started_convolution(net, x, name + ".squeeze", {.channels = squeezed});
  const graph::Value small =
      started_convolution(net, x, name + ".expand1x1", {.channels = expanded});
  const graph::Value large = started_convolution(net, x, name + ".expand3x3",
                                                 {.channels = expanded, .kernel = 3, .padding = 1});
  return net.concat({small, large}, 1);
}

}  // namespace

void squeezenet1_1(graph::Builder& net, const ModelOptions& options) {
  const graph::PoolOptions pool = {.kernel = 3, .stride = 2, .ceil = true};
  graph::Value x = net.image(options.batch, options.channels, options.image, options.image);
  x = started_convolution(net, x, "features.0", {.channels = 64, .kernel = 3, .stride = 2});
  x = net.max_pool(x, pool, "features.2");
  x = fire(net, x, "features.3", 16, 64);
  x = fire(net, x, "features.4", 16, 64);
  x = net.max_pool(x, pool, "features.5");
  x = fire(net, x, "features.6", 32, 128);
  x = fire(net, x, "features.7", 32, 128);
  x = net.max_pool(x, pool, "features.8");
  x = fire(net, x, "features.9", 48, 192);
  x = fire(net, x, "features.10", 48, 192);
  x = fire(net, x, "features.11", 64, 256);
  x = fire(net, x, "features.12", 64, 256);
  if (options.dropout) x = net.dropout(x, 0.5);
  x = net.relu(net.convolution(x, "classifier.1",
                               {.channels = options.classes,
                                .bias = true,
                                .start = {graph::WeightStart::Kind::normal, 0.01f}}));
  net.classify(net.flatten(average_to(net, x, 1, 1)), {.label_smoothing = options.label_smoothing});
}

}  // namespace millrace::models
