#include "models/blocks.h"

namespace millrace::models {

// A residual network for small grey images: most weights sit where the image is smallest, so
// that an epoch stays cheap.
void fashion_cnn(graph::Builder& net, const ModelOptions& options) {
  graph::Value x = net.image(options.batch, options.channels, options.image, options.image);
  x = net.relu(
      convolution_norm(net, x, "conv1", "bn1", {.channels = 32, .kernel = 3, .padding = 1}));
  x = net.max_pool(x, {.kernel = 2, .stride = 2}, "maxpool");
  x = basic_block(net, x, "layer1.0", 32, 1);
  x = basic_block(net, x, "layer2.0", 64, 2);
  x = basic_block(net, x, "layer3.0", 128, 2);
  x = net.flatten(average_to(net, x, 1, 1));
  net.classify(net.linear(x, "fc", {.features = options.classes}),
               {.label_smoothing = options.label_smoothing});
}

}  // namespace millrace::models
