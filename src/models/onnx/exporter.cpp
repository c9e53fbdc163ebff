#include "models/onnx/exporter.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/version.h"

namespace millrace::models::onnx {
namespace {

constexpr std::string_view kBatch = "batch";

// The least version of the file format that an opset may be in.
int64_t ir_version_of(int64_t opset) {
  if (opset >= 21) return 10;
  if (opset >= 19) return 9;
  return opset >= 15 ? 8 : 7;
}

graph::TensorId find_result(const graph::Graph& graph, std::string_view name) {
  for (const graph::TensorId id : graph.results()) {
    if (graph.tensor(id).name == name) return id;
  }
  fail_input("The network has no result '{}' to export.", name);
}

std::vector<graph::OperatorId> operators_behind(const graph::Graph& graph, graph::TensorId result) {
  std::set<graph::TensorId> wanted = {result};
  std::vector<graph::OperatorId> needed;
  for (auto id = graph.order().rbegin(); id != graph.order().rend(); ++id) {
    const graph::Operator& op = graph.op(*id);
    const bool is_needed =
        std::any_of(op.outputs.begin(), op.outputs.end(),
                    [&](graph::TensorId output) { return wanted.contains(output); });
    if (!is_needed) continue;
    wanted.insert(op.inputs.begin(), op.inputs.end());
    needed.push_back(*id);
  }
  std::reverse(needed.begin(), needed.end());
  return needed;
}

ValueInfo value_of(const graph::Tensor& tensor) {
  ValueInfo value = {.name = tensor.name};
  for (const int64_t extent : tensor.type.shape) value.shape.push_back({.number = extent});
  value.shape.at(0) = {.symbol = std::string(kBatch)};
  return value;
}

}  // namespace

NodeAttribute attribute(std::string_view name, int64_t value) {
  NodeAttribute made = {.name = std::string(name), .kind = NodeAttribute::Kind::integer};
  made.integer = value;
  return made;
}

NodeAttribute attribute(std::string_view name, double value) {
  NodeAttribute made = {.name = std::string(name), .kind = NodeAttribute::Kind::number};
  made.number = value;
  return made;
}

NodeAttribute attribute(std::string_view name, std::vector<int64_t> values) {
  NodeAttribute made = {.name = std::string(name), .kind = NodeAttribute::Kind::integers};
  made.integers = std::move(values);
  return made;
}

Exporter::Exporter(const graph::Graph& graph, const WeightValues& weights,
                   const ExportSettings& settings)
    : graph_(graph), weights_(weights), settings_(settings) {
  if (settings.opset < kFirstOpset || settings.opset > kLastOpset) {
    fail_input("‹opset› is {}; give {} to {}.", settings.opset, kFirstOpset, kLastOpset);
  }
  result_ = find_result(graph, settings.result);
  needed_ = operators_behind(graph, result_);
  left_out_.assign(static_cast<size_t>(graph.operator_count()), false);
  model_.opset = settings.opset;
  model_.ir_version = ir_version_of(settings.opset);
  model_.producer = fmt::format("millrace {}", kVersion);
  model_.graph_name = "network";
  if (settings.fold) choose_folded();
}

// A normalisation goes into the convolution or linear layer before it if nobody else reads that.
void Exporter::choose_folded() {
  std::map<graph::TensorId, int> readers;
  for (const graph::OperatorId id : needed_) {
    for (const graph::TensorId input : graph_.op(id).inputs) ++readers[input];
  }
  for (const graph::OperatorId id : needed_) {
    const graph::Operator& norm = graph_.op(id);
    if (norm.type != "batch_norm") continue;
    const graph::TensorId input = norm.inputs.at(0);
    const graph::OperatorId producer = graph_.tensor(input).producer;
    if (producer == graph::kNone || readers[input] != 1) continue;
    const graph::Operator& before = graph_.op(producer);
    if (before.type != "convolution" && before.type != "linear") continue;
    folded_[&before] = &norm;
    left_out_[static_cast<size_t>(id)] = true;
  }
}

const graph::Operator* Exporter::folded_into(const graph::Operator& op) const {
  const auto found = folded_.find(&op);
  return found == folded_.end() ? nullptr : found->second;
}

std::string Exporter::constant(std::string name, graph::Shape shape, std::vector<float> values) {
  model_.initializers.push_back(TensorData::of(name, std::move(shape), std::move(values)));
  return name;
}

std::string Exporter::constant(std::string name, const std::vector<int64_t>& values) {
  const graph::Shape shape = {static_cast<int64_t>(values.size())};
  model_.initializers.push_back(TensorData::of(name, shape, values));
  return name;
}

std::string Exporter::weight(graph::TensorId id, graph::Shape shape) {
  return constant(name(id), shape.empty() ? this->shape(id) : std::move(shape), values(id));
}

void Exporter::node(std::string_view type, std::vector<std::string> inputs, std::string output,
                    std::vector<NodeAttribute> attributes) {
  model_.nodes.push_back({.type = std::string(type),
                          .name = output,
                          .inputs = std::move(inputs),
                          .outputs = {output},
                          .attributes = std::move(attributes)});
}

void Exporter::write_operator(graph::OperatorId id) {
  if (left_out_[static_cast<size_t>(id)]) return;
  const graph::Operator& op = graph_.op(id);
  const WriteOperator write = find_writer(op.type);
  if (write == nullptr) {
    fail_input("Layer '{}' ({}) cannot be exported: ONNX has no node for it here.", op.name,
               op.type);
  }
  write(*this, op);
}

Model Exporter::take() {
  for (const graph::OperatorId id : needed_) {
    write_operator(id);
    for (const graph::TensorId input : graph_.op(id).inputs) {
      const graph::Tensor& tensor = graph_.tensor(input);
      const bool known = !model_.inputs.empty() && model_.inputs.back().name == tensor.name;
      if (tensor.role == graph::Role::input && !known) model_.inputs.push_back(value_of(tensor));
    }
  }
  model_.outputs.push_back(value_of(graph_.tensor(result_)));
  return std::move(model_);
}

Model export_graph(const graph::Graph& graph, const WeightValues& weights,
                   const ExportSettings& settings) {
  return Exporter(graph, weights, settings).take();
}

}  // namespace millrace::models::onnx
