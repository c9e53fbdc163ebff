// Builds a network layer by layer; reads like a description of the model.
//
//   Builder net;
//   Value x = net.image(batch, 3, 224, 224);
//   x = net.convolution(x, "conv1", {.channels = 64, .kernel = 7, .stride = 2, .padding = 3});
//   x = net.relu(net.batch_norm(x, "bn1"));
//   ...
//   net.classify(net.linear(x, "fc", {.features = 1000}), {.label_smoothing = 0.1});
//   Graph graph = net.take();
//
// Layer names become parameter names: "conv1.weight", "bn1.running_mean". A layer without a name
// gets one from its type and a counter: "relu_3". Shape mistakes throw InputError naming the
// layer. Single-threaded; `take` ends the builder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/margin_head.h"

namespace millrace::graph {

// A tensor of the network being built.
struct Value {
  TensorId id = kNone;
};

// How weights start out. `torch_default`: uniform within ±1/sqrt(fan in), and a convolution's bias
// too, which else is 0. `he_fan_out`, `he_fan_in`: normal with standard deviation sqrt(2 / fan);
// `he_uniform`: uniform with sqrt(2 / fan in). `uniform_fan_out`: within ±1/sqrt(fan out).
// `normal`: standard deviation `deviation`.
struct WeightStart {
  enum class Kind : uint8_t {
    torch_default,
    he_fan_out,
    he_fan_in,
    he_uniform,
    uniform_fan_out,
    normal
  };
  Kind kind = Kind::torch_default;
  float deviation = 0.01f;
};

struct ConvolutionOptions {
  int64_t channels = 0;
  int64_t kernel = 1;
  int64_t stride = 1;
  int64_t padding = 0;
  int64_t dilation = 1;
  int64_t groups = 1;
  bool bias = false;
  WeightStart start = {WeightStart::Kind::he_fan_out};
};

struct LinearOptions {
  int64_t features = 0;
  bool bias = true;
  WeightStart start = {};
  bool zero_bias = false;
};

struct BatchNormOptions {
  double epsilon = 1e-5;
  double momentum = 0.1;     // the weight of the new batch in the running statistics
  float scale = 1;           // the initial scale
  bool fixed_scale = false;  // the scale is a buffer and not trained
};

struct PoolOptions {
  int64_t kernel = 2;
  int64_t stride = 2;
  int64_t padding = 0;
  bool count_include_pad = true;
  bool ceil = false;  // of max_pool: the last window may reach beyond the image
};

struct ClassifyOptions {
  double label_smoothing = 0;
};

class Builder {
 public:
  // The image input "images" (N,C,H,W, f32).
  Value image(int64_t batch, int64_t channels, int64_t height, int64_t width);

  Value convolution(Value x, const std::string& name, const ConvolutionOptions& options);
  Value linear(Value x, const std::string& name, const LinearOptions& options);
  Value batch_norm(Value x, const std::string& name, const BatchNormOptions& options = {});
  Value prelu(Value x, const std::string& name, float start = 0.25f);
  Value relu(Value x);
  Value relu6(Value x);
  Value sigmoid(Value x);
  Value hardsigmoid(Value x);
  Value tanh(Value x);
  Value silu(Value x);
  Value hardswish(Value x);
  Value max_pool(Value x, const PoolOptions& options, const std::string& name = {});
  Value average_pool(Value x, const PoolOptions& options, const std::string& name = {});
  Value global_average_pool(Value x);
  Value adaptive_average_pool(Value x, int64_t height, int64_t width, const std::string& name = {});
  Value add(Value a, Value b);
  Value concat(const std::vector<Value>& parts, int64_t axis);
  // Each channel of each image times a number: `factors` is N x C x 1 x 1.
  Value scale_channels(Value x, Value factors);
  Value flatten(Value x);
  // Zeroes each element with probability `rate` in training and scales the rest by 1/(1-rate).
  Value dropout(Value x, double rate);
  // The same for whole samples: zeroes each with probability `rate` (stochastic depth).
  Value drop_samples(Value x, double rate);
  Value l2_normalize(Value x, double epsilon = 1e-12);

  // Ends a classifier: adds the input "labels" (N, s32), the results "loss" (mean softmax
  // cross-entropy), "top1" and "top5" (numbers of samples classified rightly), and "logits".
  void classify(Value logits, const ClassifyOptions& options = {});

  // Ends a network that makes embeddings (N x features) with a margin head: adds the input
  // "labels" (N, s32), the centres "head.centres", and the results "loss" and "top1" (the number
  // of samples whose own centre is the nearest of those in use). The head normalises embeddings and
  // centres, and updates the centres itself.
  void margin_head(Value embedding, const MarginHeadOptions& options);

  // An input that is not an image.
  Value input(const std::string& name, Shape shape, DataType dtype = DataType::f32);

  // Makes x a result of the network under this name.
  void result(Value x, const std::string& name);

  const Shape& shape(Value x) const;

  // Adds any operator by type; the escape hatch for operators without a method here.
  Value apply(const std::string& type, const std::string& name, const std::vector<Value>& inputs,
              Attributes attributes = {});

  // A trained tensor "<name>".
  Value parameter(const std::string& name, Shape shape, Initializer initializer);

  // A tensor "<name>" that is kept but not trained, and starts with one value.
  Value buffer(const std::string& name, Shape shape, float value);

  Graph take();

 private:
  Value labels_for(Value rows);
  Value random_zeros(Value x, double rate, bool by_sample);
  std::string unique_name(const std::string& type);
  Value weight(const std::string& name, Shape shape, const WeightStart& start, int64_t fan_in,
               int64_t fan_out);

  Graph graph_;
  int64_t next_ = 0;
};

}  // namespace millrace::graph
