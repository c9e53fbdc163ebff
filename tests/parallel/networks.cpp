#include "networks.h"

#include "graph/builder.h"

namespace millrace::testing {

graph::Graph alexnet_like(int64_t batch) {
  graph::Builder net;
  graph::Value x = net.image(batch, 3, 13, 13);
  x = net.relu(net.convolution(x, "c1", {.channels = 8, .kernel = 3, .stride = 2, .bias = true}));
  x = net.max_pool(x, {.kernel = 3, .stride = 2});
  x = net.relu(net.convolution(x, "c2", {.channels = 10, .kernel = 3, .padding = 1, .bias = true}));
  x = net.dropout(net.flatten(x), 0.5);
  x = net.dropout(net.relu(net.linear(x, "f1", {.features = 33})), 0.5);
  x = net.relu(net.linear(x, "f2", {.features = 29}));
  net.classify(net.linear(x, "f3", {.features = kClasses}), {.label_smoothing = 0.1});
  return net.take();
}

graph::Graph vgg_like(int64_t batch) {
  graph::Builder net;
  graph::Value x = net.image(batch, 3, 8, 8);
  for (const char* name : {"a", "b"}) {
    const std::string base = name;
    x = net.convolution(x, base + "1", {.channels = 12, .kernel = 3, .padding = 1, .bias = true});
    x = net.relu(x);
    x = net.convolution(x, base + "2", {.channels = 12, .kernel = 3, .padding = 1, .bias = true});
    x = net.max_pool(net.relu(x), {});
  }
  x = net.relu(net.linear(net.flatten(net.adaptive_average_pool(x, 2, 2)), "f1", {.features = 40}));
  net.classify(net.linear(x, "f2", {.features = kClasses}));
  return net.take();
}

graph::Graph resnet_like(int64_t batch) {
  graph::Builder net;
  graph::Value x = net.image(batch, 3, 9, 9);
  const auto layer = [&](graph::Value in, const std::string& name, int64_t channels,
                         int64_t stride) {
    const graph::Value y = net.convolution(
        in, name, {.channels = channels, .kernel = 3, .stride = stride, .padding = 1});
    return net.batch_norm(y, name + ".norm");
  };
  x = net.relu(layer(x, "stem", 8, 1));
  graph::Value y = layer(net.relu(layer(x, "b1.1", 8, 1)), "b1.2", 8, 1);
  x = net.relu(net.add(y, x));
  y = layer(net.relu(layer(x, "b2.1", 14, 2)), "b2.2", 14, 1);
  x = net.relu(net.add(y, layer(x, "b2.short", 14, 2)));
  x = net.prelu(x, "slopes");
  net.classify(net.linear(net.flatten(net.global_average_pool(x)), "fc", {.features = kClasses}));
  return net.take();
}

std::map<std::string, Values> first_values(const graph::Graph& graph) {
  std::map<std::string, Values> values;
  for (graph::TensorId id = 0; id < graph.tensor_count(); ++id) {
    const graph::Tensor& tensor = graph.tensor(id);
    if (!graph::is_persistent(tensor.role)) continue;
    Values drawn = random_values(tensor.type, static_cast<uint64_t>(id) + 3);
    if (tensor.role == graph::Role::parameter) {
      const bool scale = tensor.initializer.kind == graph::Initializer::Kind::constant;
      for (double& v : drawn) v = static_cast<float>(scale ? 1 + 0.2 * v : 0.4 * v);
    }
    if (tensor.type.dtype == graph::DataType::s32) drawn = random_labels(tensor.type, kClasses, 9);
    values[tensor.name] = std::move(drawn);
  }
  return values;
}

}  // namespace millrace::testing
