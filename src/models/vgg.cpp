#include <vector>

#include "models/blocks.h"

namespace millrace::models {
namespace {

constexpr int64_t kPool = 0;
const std::vector<int64_t> kSixteen = {64,    64,  kPool, 128, 128,   kPool, 256, 256, 256,
                                       kPool, 512, 512,   512, kPool, 512,   512, 512, kPool};

void vgg(graph::Builder& net, const ModelOptions& options, bool norm) {
  const auto dropout = [&](graph::Value x) { return options.dropout ? net.dropout(x, 0.5) : x; };
  const auto linear = [&](graph::Value x, const std::string& name, int64_t features) {
    return net.linear(x, name,
                      {.features = features,
                       .start = {graph::WeightStart::Kind::normal, 0.01f},
                       .zero_bias = true});
  };

  graph::Value x = net.image(options.batch, options.channels, options.image, options.image);
  int index = 0;
  const auto next_name = [&index](int layers) {
    const std::string name = "features." + std::to_string(index);
    index += layers;
    return name;
  };
  for (int64_t channels : kSixteen) {
    if (channels == kPool) {
      x = net.max_pool(x, {.kernel = 2, .stride = 2}, next_name(1));
      continue;
    }
    const int layers_after = norm ? 1 : 2;
    x = net.convolution(x, next_name(layers_after),
                        {.channels = channels, .kernel = 3, .padding = 1, .bias = true});
    if (norm) x = net.batch_norm(x, next_name(2));
    x = net.relu(x);
  }
  x = net.flatten(average_to(net, x, 7, 7));
  x = dropout(net.relu(linear(x, "classifier.0", 4096)));
  x = dropout(net.relu(linear(x, "classifier.3", 4096)));
  net.classify(linear(x, "classifier.6", options.classes),
               {.label_smoothing = options.label_smoothing});
}

}  // namespace

void vgg16(graph::Builder& net, const ModelOptions& options) { vgg(net, options, false); }
void vgg16_bn(graph::Builder& net, const ModelOptions& options) { vgg(net, options, true); }

}  // namespace millrace::models
