// Nodes that become gates and cuts: sigmoids, products of something with them, and what cuts off.
#include <cmath>
#include <limits>

#include "base/error.h"
#include "models/onnx/importer.h"

namespace millrace::models::onnx {
namespace {

constexpr double kOpen = std::numeric_limits<double>::infinity();

bool multiplies(const Node* node, const std::string& input) {
  return node != nullptr && node->type == "Mul" && node->inputs.size() == 2 &&
         (node->inputs[0] == input || node->inputs[1] == input);
}

// A gate of x, which `gives` has: a layer by itself, or with the product of it and x that follows.
void add_gate(Importer& importer, const std::string& input, graph::Value x, const Node& gives,
              graph::Value (graph::Builder::*gate)(graph::Value),
              graph::Value (graph::Builder::*gated)(graph::Value)) {
  const Node* next = importer.only_reader(gives);
  if (!multiplies(next, input)) return importer.set(gives, (importer.net().*gate)(x));
  importer.set(*next, (importer.net().*gated)(x));
  importer.set_done(*next);
}

void read_sigmoid(Importer& importer, const Node& node) {
  const graph::Value x = importer.value(node, 0);
  add_gate(importer, node.inputs[0], x, node, &graph::Builder::sigmoid, &graph::Builder::silu);
}

// Of any slope: that of 1/6 through 0.5, of something scaled.
void read_hardsigmoid(Importer& importer, const Node& node) {
  const double slope = number_of(node, "alpha", 0.2), middle = number_of(node, "beta", 0.5);
  const graph::Value x = importer.value(node, 0);
  if (std::abs(slope - 1.0 / 6) <= 1e-6 && middle == 0.5) {
    return add_gate(importer, node.inputs[0], x, node, &graph::Builder::hardsigmoid,
                    &graph::Builder::hardswish);
  }
  const graph::Value scaled = scale_images(importer, node, x, static_cast<float>(6 * slope),
                                           static_cast<float>(6 * middle - 3));
  importer.set(node, importer.net().hardsigmoid(scaled));
}

// The one number that a node of two inputs has beside `input`.
std::optional<float> number_beside(const Importer& importer, const Node& node,
                                   const std::string& input) {
  if (node.inputs.size() != 2) return {};
  const TensorData* data = importer.constant(node, node.inputs[0] == input ? 1 : 0);
  if (data == nullptr || graph::elements_of(data->shape) != 1) return {};
  if (data->type == ElementType::s64 || data->type == ElementType::s32) return {};
  return data->numbers().at(0);
}

struct Cut {
  double least = -kOpen, most = kOpen;
  const Node* last = nullptr;
};

// A bound of Clip: an input, or an attribute before opset 11.
double bound_of(const Importer& importer, const Node& node, size_t input, std::string_view name,
                double otherwise) {
  double bound = number_of(node, name, otherwise);
  if (importer.has_input(node, input)) {
    const std::vector<float> numbers = importer.need_constant(node, input).numbers();
    if (numbers.size() != 1) fail_input("its bounds must be one number each");
    bound = numbers[0];
  }
  return std::abs(bound) > 3e38 ? std::copysign(kOpen, bound) : bound;
}

// What a node cuts off of `input`, if that is what it does.
std::optional<Cut> cut_of(const Importer& importer, const Node& node, const std::string& input) {
  if (node.inputs.empty()) return {};
  if (node.type == "Relu") return Cut{0, kOpen, &node};
  if (node.type == "Clip" && node.inputs[0] == input) {
    return Cut{bound_of(importer, node, 1, "min", -kOpen),
               bound_of(importer, node, 2, "max", kOpen), &node};
  }
  const std::optional<float> number = number_beside(importer, node, input);
  if (!number || (node.type != "Max" && node.type != "Min")) return {};
  return node.type == "Max" ? Cut{*number, kOpen, &node} : Cut{-kOpen, *number, &node};
}

// What nodes one behind the other cut off together; the layers relu and relu6 cut off at 0 and 6.
bool is_layer(const Cut& cut) { return cut.least == 0 && (cut.most == 6 || cut.most == kOpen); }

std::optional<Cut> cuts_from(const Importer& importer, const Node& node, const std::string& input) {
  std::optional<Cut> cut = cut_of(importer, node, input);
  std::optional<Cut> found = cut && is_layer(*cut) ? cut : std::nullopt;
  while (cut) {
    const Node* next = importer.only_reader(*cut->last);
    if (next == nullptr) break;
    const std::optional<Cut> more = cut_of(importer, *next, cut->last->outputs.at(0));
    if (!more || more->least > cut->most || more->most < cut->least) break;
    cut = Cut{std::max(cut->least, more->least), std::min(cut->most, more->most), next};
    if (is_layer(*cut)) found = cut;
  }
  return found;
}

void set_done_between(Importer& importer, const Node& first, const Node& last) {
  for (const Node* at = &first; at != &last;) {
    at = importer.only_reader(*at);
    importer.set_done(*at);
  }
}

void read_cut(Importer& importer, const Node& node) {
  const size_t place = importer.constant(node, 0) != nullptr ? 1 : 0;
  const graph::Value x = importer.value(node, place);
  const std::optional<Cut> cut = cuts_from(importer, node, node.inputs[place]);
  if (!cut) {
    const std::optional<Cut> own = cut_of(importer, node, node.inputs[place]);
    if (!own) fail_input("it is supported with one number only");
    fail_input("it cuts off at {} and {}; only 0 and 6 are supported", own->least, own->most);
  }
  set_done_between(importer, node, *cut->last);
  importer.set(*cut->last, cut->most == 6 ? importer.net().relu6(x) : importer.net().relu(x));
}

// Each channel times a number, which may be on either side.
void read_product(Importer& importer, const Node& node) {
  if (read_scaling(importer, node)) return;
  graph::Value x = importer.value(node, 0), factors = importer.value(node, 1);
  const auto is_factors = [&](graph::Value value) {
    const graph::Shape& shape = importer.net().shape(value);
    return shape.size() == 4 && shape[2] == 1 && shape[3] == 1;
  };
  if (!is_factors(factors)) std::swap(x, factors);
  if (!is_factors(factors)) fail_input("only a factor for each channel is supported");
  importer.set(node, importer.net().scale_channels(x, factors));
}

void read_hardswish(Importer& importer, const Node& node) {
  importer.set(node, importer.net().hardswish(importer.value(node, 0)));
}

// With a slope that is not trained.
void read_leaky_relu(Importer& importer, const Node& node) {
  const graph::Value x = importer.value(node, 0);
  const graph::Shape shape = importer.net().shape(x);
  if (shape.size() < 2) fail_input("it gets {}", graph::to_string(shape));
  require_few(shape[1]);
  const std::string name = importer.layer_name(node, nullptr) + ".weight";
  const auto slope = static_cast<float>(number_of(node, "alpha", 0.01));
  const graph::Shape channels = {shape[1]};
  const graph::Value slopes = importer.net().buffer(name, channels, slope);
  importer.take_weight(
      name,
      TensorData::of(name, channels, std::vector<float>(static_cast<size_t>(shape[1]), slope)));
  importer.set(node, importer.net().apply("prelu", "", {x, slopes}));
}

void read_quotient(Importer& importer, const Node& node) {
  if (!read_pixels(importer, node) && !read_scaling(importer, node))
    fail_input("only constants are supported beside images");
}

constexpr NodeReader kGates[] = {
    {"Clip", read_cut},
    {"Div", read_quotient},
    {"HardSigmoid", read_hardsigmoid},
    {"HardSwish", read_hardswish},
    {"LeakyRelu", read_leaky_relu},
    {"Max", read_cut},
    {"Min", read_cut},
    {"Mul", read_product},
    {"Relu", read_cut},
    {"Sigmoid", read_sigmoid},
    {"Sub", read_quotient},
};

// Whether a node divides `input` by 6.
bool divides_by_six(const Importer& importer, const Node* node, const std::string& input) {
  if (node == nullptr) return false;
  const std::optional<float> number = number_beside(importer, *node, input);
  if (!number) return false;
  if (node->type == "Mul") return std::abs(*number - 1.0f / 6) < 1e-6f;
  return node->type == "Div" && node->inputs[0] == input && *number == 6;
}

}  // namespace

std::optional<HardGate> find_hard_gate(const Importer& importer, const Node& node) {
  if (node.type != "Add" || node.inputs.size() != 2) return {};
  const size_t place = importer.constant(node, 0) != nullptr ? 1 : 0;
  if (number_beside(importer, node, node.inputs[place]) != 3) return {};
  const Node* next = importer.only_reader(node);
  if (next == nullptr) return {};
  const std::optional<Cut> cut = cuts_from(importer, *next, node.outputs.at(0));
  if (!cut || cut->most != 6) return {};
  HardGate gate = {.input = place, .last = cut->last};
  next = importer.only_reader(*gate.last);
  gate.is_product = multiplies(next, node.inputs[place]);
  if (gate.is_product) {
    gate.last = next;
    next = importer.only_reader(*next);
  }
  if (!divides_by_six(importer, next, gate.last->outputs.at(0))) return {};
  gate.last = next;
  return gate;
}

bool read_hard_gate(Importer& importer, const Node& node) {
  const std::optional<HardGate> gate = find_hard_gate(importer, node);
  if (!gate) return false;
  const graph::Value x = importer.value(node, gate->input);
  set_done_between(importer, node, *gate->last);
  if (gate->is_product) {
    importer.set(*gate->last, importer.net().hardswish(x));
  } else {
    add_gate(importer, node.inputs[gate->input], x, *gate->last, &graph::Builder::hardsigmoid,
             &graph::Builder::hardswish);
  }
  return true;
}

ReadNode find_gate_reader(std::string_view type) {
  for (const NodeReader& reader : kGates) {
    if (reader.type == type) return reader.read;
  }
  return nullptr;
}

}  // namespace millrace::models::onnx
