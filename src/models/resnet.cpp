#include <fmt/format.h>

#include <array>

#include "models/blocks.h"

namespace millrace::models {
namespace {

using Depths = std::array<int, 4>;

// `block` makes one from (input, name, width of the stage, stride).
template <typename Block>
void resnet(graph::Builder& net, const ModelOptions& options, const Depths& depths,
            const Block& block) {
  graph::Value x = net.image(options.batch, options.channels, options.image, options.image);
  x = net.relu(convolution_norm(net, x, "conv1", "bn1",
                                {.channels = 64, .kernel = 7, .stride = 2, .padding = 3}));
  x = net.max_pool(x, {.kernel = 3, .stride = 2, .padding = 1}, "maxpool");
  int64_t width = 64;
  for (size_t stage = 0; stage < depths.size(); ++stage, width *= 2) {
    for (int i = 0; i < depths[stage]; ++i) {
      const std::string name = fmt::format("layer{}.{}", stage + 1, i);
      x = block(x, name, width, stage > 0 && i == 0 ? 2 : 1);
    }
  }
  x = net.flatten(average_to(net, x, 1, 1));
  net.classify(net.linear(x, "fc", {.features = options.classes}),
               {.label_smoothing = options.label_smoothing});
}

void basic_resnet(graph::Builder& net, const ModelOptions& options, const Depths& depths) {
  resnet(net, options, depths,
         [&](graph::Value x, const std::string& name, int64_t width, int64_t stride) {
           return basic_block(net, x, name, width, stride);
         });
}

// With `wider` times the inner channels, in `groups`.
void deep_resnet(graph::Builder& net, const ModelOptions& options, const Depths& depths,
                 int64_t wider = 1, int64_t groups = 1) {
  resnet(net, options, depths,
         [&](graph::Value x, const std::string& name, int64_t width, int64_t stride) {
           return bottleneck(
               net, x, name,
               {.inner = wider * width, .channels = 4 * width, .stride = stride, .groups = groups});
         });
}

}  // namespace

void resnet18(graph::Builder& net, const ModelOptions& options) {
  basic_resnet(net, options, {2, 2, 2, 2});
}
void resnet34(graph::Builder& net, const ModelOptions& options) {
  basic_resnet(net, options, {3, 4, 6, 3});
}
void resnet50(graph::Builder& net, const ModelOptions& options) {
  deep_resnet(net, options, {3, 4, 6, 3});
}
void resnet101(graph::Builder& net, const ModelOptions& options) {
  deep_resnet(net, options, {3, 4, 23, 3});
}
void resnet152(graph::Builder& net, const ModelOptions& options) {
  deep_resnet(net, options, {3, 8, 36, 3});
}
void resnext50_32x4d(graph::Builder& net, const ModelOptions& options) {
  deep_resnet(net, options, {3, 4, 6, 3}, 2, 32);
}
void wide_resnet50_2(graph::Builder& net, const ModelOptions& options) {
  deep_resnet(net, options, {3, 4, 6, 3}, 2);
}

}  // namespace millrace::models
