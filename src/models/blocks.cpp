#include "models/blocks.h"

namespace millrace {
namespace {

Value short_cut(Builder& net, Value x, const std::string& name, int64_t channels, int64_t stride) {
  if (stride == 1 && net.shape(x)[1] == channels) return x;
  return convolution_norm(net, x, name + ".downsample.0", name + ".downsample.1",
                          {.channels = channels, .stride = stride});
}

}  // namespace

Value convolution_norm(Builder& net, Value x, const std::string& convolution,
                       const std::string& norm, const ConvolutionOptions& options) {
  return net.batch_norm(net.convolution(x, convolution, options), norm);
}

Value basic_block(Builder& net, Value x, const std::string& name, int64_t channels,
                  int64_t stride) {
  Value y = convolution_norm(net, x, name + ".conv1", name + ".bn1",
                             {.channels = channels, .kernel = 3, .stride = stride, .padding = 1});
  y = convolution_norm(net, net.relu(y), name + ".conv2", name + ".bn2",
                       {.channels = channels, .kernel = 3, .padding = 1});
  return net.relu(net.add(y, short_cut(net, x, name, channels, stride)));
}

Value bottleneck(Builder& net, Value x, const std::string& name, int64_t width, int64_t stride) {
  Value y = convolution_norm(net, x, name + ".conv1", name + ".bn1", {.channels = width});
  y = convolution_norm(net, net.relu(y), name + ".conv2", name + ".bn2",
                       {.channels = width, .kernel = 3, .stride = stride, .padding = 1});
  y = convolution_norm(net, net.relu(y), name + ".conv3", name + ".bn3", {.channels = 4 * width});
  return net.relu(net.add(y, short_cut(net, x, name, 4 * width, stride)));
}

Value average_to(Builder& net, Value x, int64_t height, int64_t width) {
  const Shape& shape = net.shape(x);
  if (shape[2] == height && shape[3] == width) return x;
  if (height == 1 && width == 1) return net.global_average_pool(x);
  // With a name of its own, as layers that are counted should be called the same with any image.
  return net.adaptive_average_pool(x, height, width, "avgpool");
}

}  // namespace millrace
