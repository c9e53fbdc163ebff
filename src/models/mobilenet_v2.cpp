#include "models/blocks.h"

namespace millrace::models {
namespace {

struct Stage {
  int64_t expansion;
  int64_t channels;
  int count;
  int64_t stride;  // of the first block
};

constexpr Stage kStages[] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                             {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};

// 1x1 to more channels, a 3x3 on each by itself, 1x1 to `channels` with nothing behind it.
graph::Value inverted_residual(graph::Builder& net, graph::Value x, const std::string& name,
                               int64_t expansion, int64_t channels, int64_t stride) {
  const int64_t in = net.shape(x)[1];
  const int64_t inner = expansion * in;
  int part = 0;
  const auto next = [&] { return name + ".conv." + std::to_string(part++); };
  graph::Value y = x;
  if (expansion != 1)
    y = active_convolution(net, y, next(), {.channels = inner}, &graph::Builder::relu6);
  y = active_convolution(net, y, next(),
                         {.channels = inner, .kernel = 3, .stride = stride, .groups = inner},
                         &graph::Builder::relu6);
  const std::string projection = next();
  y = convolution_norm(net, y, projection, next(), {.channels = channels});
  return stride == 1 && in == channels ? net.add(x, y) : y;
}

}  // namespace

void mobilenet_v2(graph::Builder& net, const ModelOptions& options) {
  graph::Value x = net.image(options.batch, options.channels, options.image, options.image);
  int index = 0;
  const auto next = [&] { return "features." + std::to_string(index++); };
  x = active_convolution(net, x, next(), {.channels = 32, .kernel = 3, .stride = 2},
                         &graph::Builder::relu6);
  for (const Stage& stage : kStages) {
    for (int i = 0; i < stage.count; ++i) {
      x = inverted_residual(net, x, next(), stage.expansion, stage.channels,
                            i == 0 ? stage.stride : 1);
    }
  }
  x = active_convolution(net, x, next(), {.channels = 1280}, &graph::Builder::relu6);
  x = net.flatten(average_to(net, x, 1, 1));
  if (options.dropout) x = net.dropout(x, 0.2);
  x = net.linear(x, "classifier.1",
                 {.features = options.classes,
                  .start = {graph::WeightStart::Kind::normal, 0.01f},
                  .zero_bias = true});
  net.classify(x, {.label_smoothing = options.label_smoothing});
}

}  // namespace millrace::models
