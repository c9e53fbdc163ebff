// Nodes that become gates: sigmoids, and products of something with them.
#include <cmath>

#include "base/error.h"
#include "models/onnx/importer.h"

namespace millrace::models::onnx {
namespace {

// A gate of x, which `gives` has: a layer by itself, or with the product of it and x that follows.
void add_gate(Importer& importer, const std::string& input, graph::Value x, const Node& gives,
              graph::Value (graph::Builder::*gate)(graph::Value),
              graph::Value (graph::Builder::*gated)(graph::Value)) {
  const Node* next = importer.only_reader(gives);
  const bool is_product = next != nullptr && next->type == "Mul" && next->inputs.size() == 2 &&
                          (next->inputs[0] == input || next->inputs[1] == input);
  if (!is_product) return importer.set(gives, (importer.net().*gate)(x));
  importer.set(*next, (importer.net().*gated)(x));
  importer.set_done(*next);
}

void read_sigmoid(Importer& importer, const Node& node) {
  const graph::Value x = importer.value(node, 0);
  add_gate(importer, node.inputs[0], x, node, &graph::Builder::sigmoid, &graph::Builder::silu);
}

void read_hardsigmoid(Importer& importer, const Node& node) {
  if (std::abs(number_of(node, "alpha", 0.2) - 1.0 / 6) > 1e-6 ||
      number_of(node, "beta", 0.5) != 0.5) {
    fail_input("only a slope of 1/6 through 0.5 is supported");
  }
  const graph::Value x = importer.value(node, 0);
  add_gate(importer, node.inputs[0], x, node, &graph::Builder::hardsigmoid,
           &graph::Builder::hardswish);
}

// Whether an input is a constant of this one number.
bool is_number(const Importer& importer, const Node& node, size_t input, float number) {
  const TensorData* data = importer.constant(node, input);
  return data != nullptr && data->type == ElementType::f32 &&
         graph::elements_of(data->shape) == 1 && std::abs(data->numbers()[0] - number) < 1e-6f;
}

// Each channel times a number, which may be on either side.
void read_product(Importer& importer, const Node& node) {
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

// Only as a part of what other nodes are read as.
void read_division(Importer&, const Node&) { fail_input("it is not supported by itself"); }

constexpr NodeReader kGates[] = {
    {"Div", read_division}, {"HardSigmoid", read_hardsigmoid}, {"HardSwish", read_hardswish},
    {"Mul", read_product},  {"Sigmoid", read_sigmoid},
};

}  // namespace

bool read_hard_gate(Importer& importer, const Node& node) {
  if (!is_number(importer, node, 1, 3)) return false;
  const Node* cut = importer.only_reader(node);
  if (cut == nullptr || cut->type != "Clip" || !is_number(importer, *cut, 1, 0) ||
      !is_number(importer, *cut, 2, 6)) {
    return false;
  }
  const Node* last = importer.only_reader(*cut);
  if (last == nullptr) return false;
  const bool divides = last->type == "Div" && is_number(importer, *last, 1, 6);
  if (!divides && !(last->type == "Mul" && is_number(importer, *last, 1, 1.0f / 6))) return false;
  const graph::Value x = importer.value(node, 0);
  add_gate(importer, node.inputs[0], x, *last, &graph::Builder::hardsigmoid,
           &graph::Builder::hardswish);
  importer.set_done(*cut);
  importer.set_done(*last);
  return true;
}

ReadNode find_gate_reader(std::string_view type) {
  for (const NodeReader& reader : kGates) {
    if (reader.type == type) return reader.read;
  }
  return nullptr;
}

}  // namespace millrace::models::onnx
