#include <fmt/format.h>

#include <array>

#include "models/blocks.h"

namespace millrace {
namespace {

using Block = Value (*)(Builder&, Value, const std::string&, int64_t, int64_t);

void resnet(Builder& net, const ModelOptions& options, Block block,
            const std::array<int, 4>& depths) {
  Value x = net.image(options.batch, options.channels, options.image, options.image);
  x = net.relu(convolution_norm(net, x, "conv1", "bn1",
                                {.channels = 64, .kernel = 7, .stride = 2, .padding = 3}));
  x = net.max_pool(x, {.kernel = 3, .stride = 2, .padding = 1}, "maxpool");
  int64_t width = 64;
  for (size_t stage = 0; stage < depths.size(); ++stage, width *= 2) {
    for (int i = 0; i < depths[stage]; ++i) {
      const std::string name = fmt::format("layer{}.{}", stage + 1, i);
      x = block(net, x, name, width, stage > 0 && i == 0 ? 2 : 1);
    }
  }
  x = net.flatten(average_to(net, x, 1, 1));
  net.classify(net.linear(x, "fc", {.features = options.classes}),
               {.label_smoothing = options.label_smoothing});
}

}  // namespace

void resnet18(Builder& net, const ModelOptions& options) {
  resnet(net, options, basic_block, {2, 2, 2, 2});
}
void resnet34(Builder& net, const ModelOptions& options) {
  resnet(net, options, basic_block, {3, 4, 6, 3});
}
void resnet50(Builder& net, const ModelOptions& options) {
  resnet(net, options, bottleneck, {3, 4, 6, 3});
}
void resnet101(Builder& net, const ModelOptions& options) {
  resnet(net, options, bottleneck, {3, 4, 23, 3});
}
void resnet152(Builder& net, const ModelOptions& options) {
  resnet(net, options, bottleneck, {3, 8, 36, 3});
}

}  // namespace millrace
