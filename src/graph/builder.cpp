#include "graph/builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/random.h"

namespace millrace::graph {
namespace {

constexpr int64_t kMostElements = int64_t{1} << 40;

Attributes::Integers pair(int64_t value) { return {value, value}; }

Attributes pool_attributes(const PoolOptions& options) {
  return {{"kernel", pair(options.kernel)},
          {"stride", pair(options.stride)},
          {"padding", pair(options.padding)}};
}

Initializer uniform_start(int64_t fan_in) {
  const float bound = 1.0f / std::sqrt(static_cast<float>(fan_in));
  return {Initializer::Kind::uniform, -bound, bound};
}

float he_deviation(int64_t fan) {
  return std::sqrt(2.0f / static_cast<float>(std::max<int64_t>(1, fan)));
}

}  // namespace

Value Builder::image(int64_t batch, int64_t channels, int64_t height, int64_t width) {
  Tensor tensor;
  tensor.name = "images";
  tensor.type.shape = {batch, channels, height, width};
  tensor.role = Role::input;
  int64_t room = kMostElements;
  for (int64_t extent : tensor.type.shape) {
    if (extent < 1 || extent > room) {
      fail_input(
          "A batch of images cannot have the shape {}; every extent must be at least 1 and "
          "all together at most 2^40 values.",
          to_string(tensor.type.shape));
    }
    room /= extent;
  }
  return {graph_.add_tensor(std::move(tensor))};
}

Value Builder::parameter(const std::string& name, Shape shape, Initializer initializer) {
  if (graph_.find_tensor(name) != kNone) {
    fail_input("The network has two tensors named '{}'; give each layer its own name.", name);
  }
  int64_t room = kMostElements;
  for (int64_t extent : shape) {
    if (extent < 1 || extent > room) {
      fail_input(
          "Parameter '{}' cannot have the shape {}; every extent must be at least 1 and "
          "all together at most 2^40 values.",
          name, to_string(shape));
    }
    room /= extent;
  }
  Tensor tensor;
  tensor.name = name;
  tensor.type.shape = std::move(shape);
  tensor.role = Role::parameter;
  tensor.initializer = initializer;
  return {graph_.add_tensor(std::move(tensor))};
}

Value Builder::buffer(const std::string& name, Shape shape, float value) {
  const Value result = parameter(name, std::move(shape), {Initializer::Kind::constant, value, 0});
  graph_.tensor(result.id).role = Role::buffer;
  return result;
}

Value Builder::weight(const std::string& name, Shape shape, const WeightStart& start,
                      int64_t fan_in, int64_t fan_out) {
  Initializer initializer = uniform_start(std::max<int64_t>(1, fan_in));
  if (start.kind == WeightStart::Kind::he_fan_out) {
    initializer = {Initializer::Kind::normal, 0, he_deviation(fan_out)};
  } else if (start.kind == WeightStart::Kind::he_fan_in) {
    initializer = {Initializer::Kind::normal, 0, he_deviation(fan_in)};
  } else if (start.kind == WeightStart::Kind::he_uniform) {
    const float bound = std::sqrt(3.0f) * he_deviation(fan_in);
    initializer = {Initializer::Kind::uniform, -bound, bound};
  } else if (start.kind == WeightStart::Kind::uniform_fan_out) {
    initializer = uniform_start(std::max<int64_t>(1, fan_out));
  } else if (start.kind == WeightStart::Kind::normal) {
    initializer = {Initializer::Kind::normal, 0, start.deviation};
  }
  return parameter(name, std::move(shape), initializer);
}

std::string Builder::unique_name(const std::string& type) {
  std::string name;
  do {
    name = fmt::format("{}_{}", type, ++next_);
  } while (graph_.find_tensor(name) != kNone);
  return name;
}

Value Builder::apply(const std::string& type, const std::string& name,
                     const std::vector<Value>& inputs, Attributes attributes) {
  std::vector<TensorId> ids;
  for (Value input : inputs) ids.push_back(input.id);
  const std::string full_name = name.empty() ? unique_name(type) : name;
  if (graph_.find_tensor(full_name) != kNone) {
    fail_input("The network has two layers named '{}'; give each its own name.", full_name);
  }
  return {graph_.apply(type, full_name, std::move(ids), std::move(attributes))};
}

Value Builder::convolution(Value x, const std::string& name, const ConvolutionOptions& options) {
  const Shape& image = shape(x);
  if (image.size() != 4) {
    fail_input(
        "Layer '{}' (convolution): needs images (batch x channels x height x width) but "
        "gets {}",
        name, to_string(image));
  }
  const int64_t in = image[1];
  if (options.groups < 1 || in % options.groups != 0) {
    fail_input(
        "Layer '{}' (convolution): needs a number of groups that divides {} input channels "
        "but gets {}",
        name, in, options.groups);
  }
  const int64_t area = options.kernel * options.kernel;
  const int64_t fan_in = in / options.groups * area;
  std::vector<Value> inputs = {
      x, weight(name + ".weight",
                {options.channels, in / options.groups, options.kernel, options.kernel},
                options.start, fan_in, options.channels * area)};
  if (options.bias) {
    const bool zero = options.start.kind != WeightStart::Kind::torch_default;
    inputs.push_back(parameter(name + ".bias", {options.channels},
                               zero ? Initializer{} : uniform_start(fan_in)));
  }
  return apply("convolution", name, inputs,
               {{"stride", pair(options.stride)},
                {"padding", pair(options.padding)},
                {"dilation", pair(options.dilation)},
                {"groups", options.groups}});
}

Value Builder::linear(Value x, const std::string& name, const LinearOptions& options) {
  const Shape& rows = shape(x);
  if (rows.size() != 2) {
    fail_input(
        "Layer '{}' (linear): needs rows of features (batch x features) but gets {}; "
        "flatten it first",
        name, to_string(rows));
  }
  const int64_t in = rows[1];
  std::vector<Value> inputs = {
      x, weight(name + ".weight", {options.features, in}, options.start, in, options.features)};
  if (options.bias) {
    inputs.push_back(parameter(name + ".bias", {options.features},
                               options.zero_bias ? Initializer{} : uniform_start(in)));
  }
  return apply("linear", name, inputs);
}

Value Builder::batch_norm(Value x, const std::string& name, const BatchNormOptions& options) {
  if (shape(x).size() < 2) {
    fail_input("Layer '{}' (batch_norm): needs a batch with channels but gets {}", name,
               to_string(shape(x)));
  }
  const Shape channels = {shape(x)[1]};
  const Value scale =
      options.fixed_scale
          ? buffer(name + ".weight", channels, options.scale)
          : parameter(name + ".weight", channels, {Initializer::Kind::constant, options.scale, 0});
  const Value bias = parameter(name + ".bias", channels, {});
  const Value mean = buffer(name + ".running_mean", channels, 0);
  const Value variance = buffer(name + ".running_var", channels, 1);
  return apply("batch_norm", name, {x, scale, bias, mean, variance},
               {{"epsilon", options.epsilon}, {"momentum", options.momentum}});
}

Value Builder::prelu(Value x, const std::string& name, float start) {
  if (shape(x).size() < 2) {
    fail_input("Layer '{}' (prelu): needs a batch with channels but gets {}", name,
               to_string(shape(x)));
  }
  const Value slopes =
      parameter(name + ".weight", {shape(x)[1]}, {Initializer::Kind::constant, start, 0});
  return apply("prelu", name, {x, slopes});
}

Value Builder::relu(Value x) { return apply("relu", "", {x}); }
Value Builder::relu6(Value x) { return apply("relu6", "", {x}); }
Value Builder::sigmoid(Value x) { return apply("sigmoid", "", {x}); }
Value Builder::hardsigmoid(Value x) { return apply("hardsigmoid", "", {x}); }
Value Builder::tanh(Value x) { return apply("tanh", "", {x}); }
Value Builder::silu(Value x) { return apply("silu", "", {x}); }
Value Builder::hardswish(Value x) { return apply("hardswish", "", {x}); }

Value Builder::max_pool(Value x, const PoolOptions& options, const std::string& name) {
  Attributes attributes = pool_attributes(options);
  if (options.ceil) attributes.set("ceil", true);
  return apply("max_pool", name, {x}, std::move(attributes));
}

Value Builder::average_pool(Value x, const PoolOptions& options, const std::string& name) {
  Attributes attributes = pool_attributes(options);
  attributes.set("count_include_pad", options.count_include_pad);
  return apply("average_pool", name, {x}, std::move(attributes));
}

Value Builder::global_average_pool(Value x) { return apply("global_average_pool", "", {x}); }

Value Builder::adaptive_average_pool(Value x, int64_t height, int64_t width,
                                     const std::string& name) {
  return apply("adaptive_average_pool", name, {x},
               {{"output", Attributes::Integers{height, width}}});
}

Value Builder::add(Value a, Value b) { return apply("add", "", {a, b}); }

Value Builder::concat(const std::vector<Value>& parts, int64_t axis) {
  return apply("concat", "", parts, {{"axis", axis}});
}

Value Builder::scale_channels(Value x, Value factors) {
  return apply("scale_channels", "", {x, factors});
}

Value Builder::flatten(Value x) { return apply("flatten", "", {x}); }

Value Builder::random_zeros(Value x, double rate, bool by_sample) {
  const std::string name = unique_name(by_sample ? "drop_samples" : "dropout");
  const auto stream = static_cast<int64_t>(hash_bytes(name.data(), name.size()));
  Attributes attributes = {{"rate", rate}, {"stream", stream}};
  if (by_sample) attributes.set("by_sample", true);
  return apply("dropout", name, {x}, std::move(attributes));
}

Value Builder::dropout(Value x, double rate) { return random_zeros(x, rate, false); }
Value Builder::drop_samples(Value x, double rate) { return random_zeros(x, rate, true); }

Value Builder::l2_normalize(Value x, double epsilon) {
  return apply("l2_normalize", "", {x}, {{"epsilon", epsilon}});
}

Value Builder::input(const std::string& name, Shape shape, DataType dtype) {
  Tensor tensor;
  tensor.name = name;
  tensor.type = {std::move(shape), dtype};
  tensor.role = Role::input;
  return {graph_.add_tensor(std::move(tensor))};
}

Value Builder::labels_for(Value rows) {
  return input("labels", {shape(rows).at(0)}, DataType::s32);
}

void Builder::classify(Value logits, const ClassifyOptions& options) {
  const Value labels = labels_for(logits);
  graph_.tensor(logits.id).name = "logits";
  const Value loss = apply("softmax_cross_entropy", "loss", {logits, labels},
                           {{"label_smoothing", options.label_smoothing}});
  const int64_t classes = shape(logits)[1];
  const Value top1 = apply("top_k", "top1", {logits, labels}, {{"k", int64_t{1}}});
  const Value top5 =
      apply("top_k", "top5", {logits, labels}, {{"k", std::min<int64_t>(5, classes)}});
  for (Value result : {loss, top1, top5, logits}) graph_.add_result(result.id);
}

void Builder::margin_head(Value embedding, const MarginHeadOptions& options) {
  if (shape(embedding).size() != 2) {
    fail_input("A margin head needs rows of features but gets {}; flatten it first.",
               to_string(shape(embedding)));
  }
  const Attributes attributes = attributes_of(options);
  const int64_t width = shape(embedding)[1];
  const Value centres = parameter("head.centres", {attributes.integer("local_classes"), width},
                                  {Initializer::Kind::normal, 0, 0.01f});
  graph_.tensor(centres.id).type.dtype = options.storage;
  if (attributes.integer("local_classes") < options.classes) {
    graph_.tensor(centres.id).slice = {0, options.class_begin, options.classes};
  }
  const Value labels = labels_for(embedding);
  const Value sample = apply("margin_head_sample", "head/sample", {labels}, attributes);
  const Value unit = l2_normalize(embedding);
  std::vector<Value> inputs = {unit, sample, centres};
  if (options.margin == HeadMargin::magnitude) {
    const Value norms = apply("row_norm", "head/norms", {embedding});
    inputs.push_back(apply("margin_head_margins", "head/margins", {norms}, attributes));
  } else if (options.margin == HeadMargin::quality) {
    const Value norms = apply("row_norm", "head/norms", {embedding});
    const Value known = buffer("head.norms", {2}, 0);
    inputs.push_back(
        apply("margin_head_running_margins", "head/margins", {norms, known}, attributes));
  } else if (options.margin == HeadMargin::curriculum) {
    const Value cosines =
        apply("margin_head_cosines", "head/cosines", {unit, sample, centres}, attributes);
    const Value known = buffer("head.curriculum", {2}, 0);
    inputs.push_back(
        apply("margin_head_running_margins", "head/margins", {cosines, known}, attributes));
  }
  const Value statistics = apply("margin_head_statistics", "head/statistics", inputs, attributes);
  const Value loss =
      apply("margin_head_loss", "loss", {statistics, statistics}, {{"members", int64_t{1}}});
  const TensorId top1 = graph_.op(graph_.tensor(loss.id).producer).outputs.at(2);
  graph_.tensor(top1).name = "top1";
  for (const TensorId result : {loss.id, top1}) graph_.add_result(result);
}

void Builder::result(Value x, const std::string& name) {
  graph_.tensor(x.id).name = name;
  graph_.add_result(x.id);
}

const Shape& Builder::shape(Value x) const { return graph_.tensor(x.id).type.shape; }

Graph Builder::take() { return std::move(graph_); }

}  // namespace millrace::graph
