#include "models/blocks.h"

namespace millrace::models {

void alexnet(graph::Builder& net, const ModelOptions& options) {
  const graph::WeightStart start = {graph::WeightStart::Kind::torch_default};
  const auto convolution = [&](graph::Value x, const std::string& name,
                               graph::ConvolutionOptions layer) {
    layer.bias = true;
    layer.start = start;
    return net.relu(net.convolution(x, name, layer));
  };
  const auto dropout = [&](graph::Value x) { return options.dropout ? net.dropout(x, 0.5) : x; };
  const graph::PoolOptions pool = {.kernel = 3, .stride = 2};

  graph::Value x = net.image(options.batch, options.channels, options.image, options.image);
  x = convolution(x, "features.0", {.channels = 64, .kernel = 11, .stride = 4, .padding = 2});
  x = net.max_pool(x, pool, "features.2");
  x = convolution(x, "features.3", {.channels = 192, .kernel = 5, .padding = 2});
  x = net.max_pool(x, pool, "features.5");
  x = convolution(x, "features.6", {.channels = 384, .kernel = 3, .padding = 1});
  x = convolution(x, "features.8", {.channels = 256, .kernel = 3, .padding = 1});
  x = convolution(x, "features.10", {.channels = 256, .kernel = 3, .padding = 1});
  x = net.max_pool(x, pool, "features.12");
  x = net.flatten(average_to(net, x, 6, 6));
  x = net.relu(net.linear(dropout(x), "classifier.1", {.features = 4096}));
  x = net.relu(net.linear(dropout(x), "classifier.4", {.features = 4096}));
  x = net.linear(x, "classifier.6", {.features = options.classes});
  net.classify(x, {.label_smoothing = options.label_smoothing});
}

}  // namespace millrace::models
