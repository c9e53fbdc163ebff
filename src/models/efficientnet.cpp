#include <fmt/format.h>

#include <algorithm>

#include "models/blocks.h"

namespace millrace::models {
namespace {

struct EfficientStage {
  int64_t expansion;
  int64_t kernel;
  int64_t stride;  // of the first block
  int64_t channels;
  int count;
};

constexpr EfficientStage kBaseline[] = {{1, 3, 1, 16, 1}, {6, 3, 2, 24, 2},  {6, 5, 2, 40, 2},
                                        {6, 3, 2, 80, 3}, {6, 5, 1, 112, 3}, {6, 5, 2, 192, 4},
                                        {6, 3, 1, 320, 1}};
constexpr Activation kSilu = &graph::Builder::silu;

// `dropped` is the share of samples that skip the block in training, where it has a short cut.
graph::Value efficient_block(graph::Builder& net, graph::Value x, const std::string& name,
                             const EfficientStage& stage, int64_t stride, double dropped) {
  const int64_t in = net.shape(x)[1];
  const int64_t inner = stage.expansion * in;
  int part = 0;
  const auto next = [&] { return name + ".block." + std::to_string(part++); };
  graph::Value y = x;
  if (stage.expansion != 1) y = active_convolution(net, y, next(), {.channels = inner}, kSilu);
  y = active_convolution(
      net, y, next(),
      {.channels = inner, .kernel = stage.kernel, .stride = stride, .groups = inner}, kSilu);
  y = squeeze_excitation(net, y, next(), std::max<int64_t>(1, in / 4), kSilu,
                         &graph::Builder::sigmoid);
  const std::string projection = next();
  y = convolution_norm(net, y, projection + ".0", projection + ".1", {.channels = stage.channels});
  if (stride != 1 || in != stage.channels) return y;
  return net.add(x, dropped > 0 ? net.drop_samples(y, dropped) : y);
}

}  // namespace

void efficientnet_b0(graph::Builder& net, const ModelOptions& options) {
  constexpr double kMostDropped = 0.2;
  int blocks = 0;
  for (const EfficientStage& stage : kBaseline) blocks += stage.count;

  graph::Value x = net.image(options.batch, options.channels, options.image, options.image);
  x = active_convolution(net, x, "features.0", {.channels = 32, .kernel = 3, .stride = 2}, kSilu);
  int index = 0, number = 0;
  for (const EfficientStage& stage : kBaseline) {
    ++index;
    for (int i = 0; i < stage.count; ++i, ++number) {
      const double dropped = options.dropout ? kMostDropped * number / blocks : 0;
      x = efficient_block(net, x, fmt::format("features.{}.{}", index, i), stage,
                          i == 0 ? stage.stride : 1, dropped);
    }
  }
  x = active_convolution(net, x, fmt::format("features.{}", index + 1), {.channels = 1280}, kSilu);
  x = net.flatten(average_to(net, x, 1, 1));
  if (options.dropout) x = net.dropout(x, 0.2);
  x = net.linear(x, "classifier.1",
                 {.features = options.classes,
                  .start = {graph::WeightStart::Kind::uniform_fan_out},
                  .zero_bias = true});
  net.classify(x, {.label_smoothing = options.label_smoothing});
}

}  // namespace millrace::models
