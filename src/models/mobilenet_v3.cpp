#include <algorithm>

#include "models/blocks.h"

namespace millrace::models {
namespace {

struct MobileBlock {
  int64_t kernel;
  int64_t inner;
  int64_t channels;
  bool squeezes;
  Activation activation;
  int64_t stride;
};

constexpr Activation kRelu = &graph::Builder::relu;
constexpr Activation kHardSwish = &graph::Builder::hardswish;

constexpr MobileBlock kLarge[] = {
    {3, 16, 16, false, kRelu, 1},       {3, 64, 24, false, kRelu, 2},
    {3, 72, 24, false, kRelu, 1},       {5, 72, 40, true, kRelu, 2},
    {5, 120, 40, true, kRelu, 1},       {5, 120, 40, true, kRelu, 1},
    {3, 240, 80, false, kHardSwish, 2}, {3, 200, 80, false, kHardSwish, 1},
    {3, 184, 80, false, kHardSwish, 1}, {3, 184, 80, false, kHardSwish, 1},
    {3, 480, 112, true, kHardSwish, 1}, {3, 672, 112, true, kHardSwish, 1},
    {5, 672, 160, true, kHardSwish, 2}, {5, 960, 160, true, kHardSwish, 1},
    {5, 960, 160, true, kHardSwish, 1},
};

constexpr graph::BatchNormOptions kNorm = {.epsilon = 1e-3, .momentum = 0.01};

// The nearest multiple of 8, and the next where that is less than 90 % of the value.
int64_t multiple_of_eight(int64_t value) {
  const int64_t near = std::max<int64_t>(8, (value + 4) / 8 * 8);
  return 10 * near < 9 * value ? near + 8 : near;
}

graph::Value mobile_block(graph::Builder& net, graph::Value x, const std::string& name,
                          const MobileBlock& block) {
  const int64_t in = net.shape(x)[1];
  int part = 0;
  const auto next = [&] { return name + ".block." + std::to_string(part++); };
  graph::Value y = x;
  if (block.inner != in) {
    y = active_convolution(net, y, next(), {.channels = block.inner}, block.activation, kNorm);
  }
  y = active_convolution(net, y, next(),
                         {.channels = block.inner,
                          .kernel = block.kernel,
                          .stride = block.stride,
                          .groups = block.inner},
                         block.activation, kNorm);
  if (block.squeezes) {
    y = squeeze_excitation(net, y, next(), multiple_of_eight(block.inner / 4), kRelu,
                           &graph::Builder::hardsigmoid);
  }
  const std::string projection = next();
  y = convolution_norm(net, y, projection + ".0", projection + ".1", {.channels = block.channels},
                       kNorm);
  return block.stride == 1 && in == block.channels ? net.add(x, y) : y;
}

}  // namespace

void mobilenet_v3_large(graph::Builder& net, const ModelOptions& options) {
  const graph::LinearOptions layer = {.start = {graph::WeightStart::Kind::normal, 0.01f},
                                      .zero_bias = true};
  const auto linear = [&](graph::Value x, const std::string& name, int64_t features) {
    graph::LinearOptions own = layer;
    own.features = features;
    return net.linear(x, name, own);
  };
  graph::Value x = net.image(options.batch, options.channels, options.image, options.image);
  int index = 0;
  const auto next = [&] { return "features." + std::to_string(index++); };
  x = active_convolution(net, x, next(), {.channels = 16, .kernel = 3, .stride = 2}, kHardSwish,
                         kNorm);
  for (const MobileBlock& block : kLarge) x = mobile_block(net, x, next(), block);
  x = active_convolution(net, x, next(), {.channels = 960}, kHardSwish, kNorm);
  x = net.hardswish(linear(net.flatten(average_to(net, x, 1, 1)), "classifier.0", 1280));
  if (options.dropout) x = net.dropout(x, 0.2);
  net.classify(linear(x, "classifier.3", options.classes),
               {.label_smoothing = options.label_smoothing});
}

}  // namespace millrace::models
