// One function for each operator that can be exported, and the list of them.
#include <cmath>

#include "models/onnx/exporter.h"

namespace millrace::models::onnx {
namespace {

std::vector<int64_t> pads_of(const graph::Operator& op) {
  const auto& padding = op.attributes.integers("padding");
  return {padding.at(0), padding.at(1), padding.at(0), padding.at(1)};
}

// A weight and bias with the normalisation that follows them.
struct Folded {
  std::vector<float> weight;
  std::vector<float> bias;
};

Folded fold(const Exporter& exporter, const graph::Operator& op, const graph::Operator& norm) {
  Folded folded = {.weight = exporter.values(op.inputs.at(1)), .bias = {}};
  const std::vector<float> scale = exporter.values(norm.inputs.at(1));
  const std::vector<float> shift = exporter.values(norm.inputs.at(2));
  const std::vector<float> mean = exporter.values(norm.inputs.at(3));
  const std::vector<float> variance = exporter.values(norm.inputs.at(4));
  folded.bias.assign(scale.size(), 0.0f);
  if (op.inputs.size() > 2) folded.bias = exporter.values(op.inputs[2]);
  const double epsilon = norm.attributes.number("epsilon");
  const size_t row = folded.weight.size() / scale.size();
  for (size_t channel = 0; channel < scale.size(); ++channel) {
    const double factor = scale[channel] / std::sqrt(variance[channel] + epsilon);
    for (size_t i = channel * row; i < (channel + 1) * row; ++i) {
      folded.weight[i] = static_cast<float>(folded.weight[i] * factor);
    }
    folded.bias[channel] = static_cast<float>(
        (static_cast<double>(folded.bias[channel]) - mean[channel]) * factor + shift[channel]);
  }
  return folded;
}

// Writes convolution or linear layer with what is folded into it.
void write_weighted(Exporter& exporter, const graph::Operator& op, std::string_view type,
                    std::vector<NodeAttribute> attributes) {
  std::vector<std::string> inputs = {exporter.name(op.inputs.at(0))};
  graph::TensorId output = op.outputs.at(0);
  if (const graph::Operator* norm = exporter.folded_into(op)) {
    Folded folded = fold(exporter, op, *norm);
    const graph::Shape& shape = exporter.shape(op.inputs[1]);
    inputs.push_back(
        exporter.constant(exporter.name(op.inputs[1]), shape, std::move(folded.weight)));
    inputs.push_back(exporter.constant(op.name + ".bias", {shape[0]}, std::move(folded.bias)));
    output = norm->outputs.at(0);
  } else {
    for (size_t i = 1; i < op.inputs.size(); ++i) inputs.push_back(exporter.weight(op.inputs[i]));
  }
  exporter.node(type, std::move(inputs), exporter.name(output), std::move(attributes));
}

void write_convolution(Exporter& exporter, const graph::Operator& op) {
  const graph::Shape& weight = exporter.shape(op.inputs.at(1));
  write_weighted(
      exporter, op, "Conv",
      {attribute("kernel_shape", {weight[2], weight[3]}),
       attribute("strides", op.attributes.integers("stride")), attribute("pads", pads_of(op)),
       attribute("dilations", op.attributes.integers("dilation")),
       attribute("group", op.attributes.integer("groups"))});
}

void write_linear(Exporter& exporter, const graph::Operator& op) {
  write_weighted(exporter, op, "Gemm", {attribute("transB", int64_t{1})});
}

void write_batch_norm(Exporter& exporter, const graph::Operator& op) {
  std::vector<std::string> inputs = {exporter.name(op.inputs.at(0))};
  for (size_t i = 1; i < 5; ++i) inputs.push_back(exporter.weight(op.inputs.at(i)));
  exporter.node("BatchNormalization", std::move(inputs), exporter.name(op.outputs.at(0)),
                {attribute("epsilon", op.attributes.number("epsilon")),
                 attribute("momentum", 1 - op.attributes.number("momentum"))});
}

// Slopes have an axis for channels, and one of extent 1 for each behind it.
void write_prelu(Exporter& exporter, const graph::Operator& op) {
  graph::Shape slopes(exporter.shape(op.inputs.at(0)).size() - 1, 1);
  slopes[0] = exporter.shape(op.inputs.at(1)).at(0);
  exporter.node("PRelu",
                {exporter.name(op.inputs[0]), exporter.weight(op.inputs[1], std::move(slopes))},
                exporter.name(op.outputs.at(0)));
}

template <const char* type>
void write_plain(Exporter& exporter, const graph::Operator& op) {
  std::vector<std::string> inputs;
  for (const graph::TensorId input : op.inputs) inputs.push_back(exporter.name(input));
  exporter.node(type, std::move(inputs), exporter.name(op.outputs.at(0)));
}

void write_relu6(Exporter& exporter, const graph::Operator& op) {
  const std::string least = exporter.constant(op.name + ".least", {}, {0});
  const std::string most = exporter.constant(op.name + ".most", {}, {6});
  exporter.node("Clip", {exporter.name(op.inputs.at(0)), least, most},
                exporter.name(op.outputs.at(0)));
}

// As min(max(x + 3, 0), 6) / 6: there are programs that read HardSigmoid with another slope.
void add_hard_gate(Exporter& exporter, const std::string& input, const std::string& output) {
  const std::string three = exporter.constant(output + ".three", {}, {3});
  const std::string least = exporter.constant(output + ".least", {}, {0});
  const std::string most = exporter.constant(output + ".most", {}, {6});
  const std::string sixth = exporter.constant(output + ".sixth", {}, {1.0f / 6});
  exporter.node("Add", {input, three}, output + ".raised");
  exporter.node("Clip", {output + ".raised", least, most}, output + ".cut");
  exporter.node("Mul", {output + ".cut", sixth}, output);
}

void write_hardsigmoid(Exporter& exporter, const graph::Operator& op) {
  add_hard_gate(exporter, exporter.name(op.inputs.at(0)), exporter.name(op.outputs.at(0)));
}

// x times a gate of x: silu and hardswish, in nodes that every opset has.
void write_hardswish(Exporter& exporter, const graph::Operator& op) {
  const std::string& input = exporter.name(op.inputs.at(0));
  const std::string& output = exporter.name(op.outputs.at(0));
  add_hard_gate(exporter, input, output + ".gate");
  exporter.node("Mul", {input, output + ".gate"}, output);
}

void write_silu(Exporter& exporter, const graph::Operator& op) {
  const std::string& input = exporter.name(op.inputs.at(0));
  const std::string& output = exporter.name(op.outputs.at(0));
  exporter.node("Sigmoid", {input}, output + ".gate");
  exporter.node("Mul", {input, output + ".gate"}, output);
}

void write_max_pool(Exporter& exporter, const graph::Operator& op) {
  exporter.node(
      "MaxPool", {exporter.name(op.inputs.at(0))}, exporter.name(op.outputs.at(0)),
      {attribute("kernel_shape", op.attributes.integers("kernel")),
       attribute("strides", op.attributes.integers("stride")), attribute("pads", pads_of(op)),
       attribute("ceil_mode", int64_t{op.attributes.flag("ceil")})});
}

void write_average_pool(Exporter& exporter, const graph::Operator& op) {
  exporter.node(
      "AveragePool", {exporter.name(op.inputs.at(0))}, exporter.name(op.outputs.at(0)),
      {attribute("kernel_shape", op.attributes.integers("kernel")),
       attribute("strides", op.attributes.integers("stride")), attribute("pads", pads_of(op)),
       attribute("count_include_pad", int64_t{op.attributes.flag("count_include_pad")})});
}

// ONNX has no such node: windows of one size where that is what it does, else a product for each
// axis, with constants on the right as every program takes them.
void write_adaptive_average_pool(Exporter& exporter, const graph::Operator& op) {
  const graph::Shape& x = exporter.shape(op.inputs.at(0));
  const graph::Shape& y = exporter.shape(op.outputs.at(0));
  const std::string& input = exporter.name(op.inputs[0]);
  const std::string& output = exporter.name(op.outputs[0]);
  if (x[2] % y[2] == 0 && x[3] % y[3] == 0) {
    const std::vector<int64_t> window = {x[2] / y[2], x[3] / y[3]};
    exporter.node("AveragePool", {input}, output,
                  {attribute("kernel_shape", window), attribute("strides", window)});
    return;
  }
  const std::vector<int64_t> swapped = {0, 1, 3, 2};
  const std::string columns =
      exporter.constant(op.name + ".columns", {x[3], y[3]}, averaging(x[3], y[3]));
  const std::string rows =
      exporter.constant(op.name + ".rows", {x[2], y[2]}, averaging(x[2], y[2]));
  exporter.node("MatMul", {input, columns}, output + ".narrow");
  exporter.node("Transpose", {output + ".narrow"}, output + ".turned",
                {attribute("perm", swapped)});
  exporter.node("MatMul", {output + ".turned", rows}, output + ".low");
  exporter.node("Transpose", {output + ".low"}, output, {attribute("perm", swapped)});
}

void write_concat(Exporter& exporter, const graph::Operator& op) {
  std::vector<std::string> inputs;
  for (const graph::TensorId input : op.inputs) inputs.push_back(exporter.name(input));
  exporter.node("Concat", std::move(inputs), exporter.name(op.outputs.at(0)),
                {attribute("axis", op.attributes.integer("axis"))});
}

void write_flatten(Exporter& exporter, const graph::Operator& op) {
  exporter.node("Flatten", {exporter.name(op.inputs.at(0))}, exporter.name(op.outputs.at(0)),
                {attribute("axis", int64_t{1})});
}

// Axes became an input with opset 18.
void write_l2_normalize(Exporter& exporter, const graph::Operator& op) {
  constexpr int64_t kAxesAsInput = 18;
  const std::string& input = exporter.name(op.inputs.at(0));
  const std::string& output = exporter.name(op.outputs.at(0));
  const auto epsilon = static_cast<float>(op.attributes.number("epsilon"));
  std::vector<std::string> inputs = {input};
  std::vector<NodeAttribute> attributes = {attribute("keepdims", int64_t{1})};
  if (exporter.opset() >= kAxesAsInput) {
    inputs.push_back(exporter.constant(output + ".axes", std::vector<int64_t>{1}));
  } else {
    attributes.push_back(attribute("axes", std::vector<int64_t>{1}));
  }
  exporter.node("ReduceL2", std::move(inputs), output + ".length", std::move(attributes));
  const std::string least = exporter.constant(output + ".least", {}, {epsilon});
  exporter.node("Clip", {output + ".length", least}, output + ".divisor");
  exporter.node("Div", {input, output + ".divisor"}, output);
}

constexpr char kAdd[] = "Add", kGlobal[] = "GlobalAveragePool", kMul[] = "Mul", kRelu[] = "Relu",
               kSigmoid[] = "Sigmoid", kTanh[] = "Tanh";

struct Writer {
  std::string_view type;
  WriteOperator write;
};

constexpr Writer kWriters[] = {
    {"adaptive_average_pool", write_adaptive_average_pool},
    {"add", write_plain<kAdd>},
    {"average_pool", write_average_pool},
    {"batch_norm", write_batch_norm},
    {"concat", write_concat},
    {"convolution", write_convolution},
    {"flatten", write_flatten},
    {"global_average_pool", write_plain<kGlobal>},
    {"hardsigmoid", write_hardsigmoid},
    {"hardswish", write_hardswish},
    {"l2_normalize", write_l2_normalize},
    {"linear", write_linear},
    {"max_pool", write_max_pool},
    {"prelu", write_prelu},
    {"relu", write_plain<kRelu>},
    {"relu6", write_relu6},
    {"scale_channels", write_plain<kMul>},
    {"sigmoid", write_plain<kSigmoid>},
    {"silu", write_silu},
    {"tanh", write_plain<kTanh>},
};

}  // namespace

std::vector<float> averaging(int64_t in, int64_t out) {
  std::vector<float> matrix(static_cast<size_t>(in * out), 0.0f);
  for (int64_t i = 0; i < out; ++i) {
    const int64_t begin = i * in / out, end = ((i + 1) * in + out - 1) / out;
    for (int64_t j = begin; j < end; ++j) {
      matrix[static_cast<size_t>(j * out + i)] = 1.0f / static_cast<float>(end - begin);
    }
  }
  return matrix;
}

WriteOperator find_writer(std::string_view type) {
  for (const Writer& writer : kWriters) {
    if (writer.type == type) return writer.write;
  }
  return nullptr;
}

}  // namespace millrace::models::onnx
