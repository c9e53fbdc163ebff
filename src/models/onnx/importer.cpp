#include "models/onnx/importer.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace millrace::models::onnx {
namespace {

constexpr std::string_view kWeightEnding = ".weight";
constexpr std::string_view kEmbedding = "embedding";
const std::vector<int64_t> kFromLast = {0, 3, 1, 2};  // an order of axes
constexpr int64_t kUsualImage = 224, kUsualChannels = 3;

std::string describe(const Node& node) {
  return fmt::format("node '{}' ({})",
                     node.name.empty() && !node.outputs.empty() ? node.outputs[0] : node.name,
                     node.type);
}

void refuse_computed(Importer&, const Node&) { fail_input("it is supported for constants only"); }

ReadNode find_reader(const Node& node) {
  if (!node.domain.empty() && node.domain != "ai.onnx") return nullptr;
  for (const auto find :
       {find_layer_reader, find_window_reader, find_gate_reader, find_shape_reader,
        find_selection_reader, find_pixel_reader, find_enlarging_reader}) {
    if (const ReadNode reader = find(node.type)) return reader;
  }
  return folds_constants(node.type) ? refuse_computed : nullptr;
}

// "/layer1/layer1.0/conv1/Conv" is layer1.0.conv1: each part but the last that does not only begin
// the one behind it.
std::string name_of_path(const std::string& path) {
  std::vector<std::string> parts = split(path, '/');
  if (parts.size() < 2) return {};
  parts.pop_back();
  std::string name;
  for (size_t i = 0; i < parts.size(); ++i) {
    const bool begins = i + 1 < parts.size() && parts[i + 1].starts_with(parts[i] + ".");
    if (parts[i].empty() || begins) continue;
    name += (name.empty() ? "" : ".") + parts[i];
  }
  return name;
}

int64_t extent_at(const ValueInfo& value, size_t axis) {
  return value.shape[axis].symbol.empty() ? value.shape[axis].number : 0;
}

}  // namespace

int64_t integer_of(const Node& node, std::string_view name, int64_t otherwise) {
  const NodeAttribute* found = node.find(name);
  return found == nullptr ? otherwise : found->integer;
}

double number_of(const Node& node, std::string_view name, double otherwise) {
  const NodeAttribute* found = node.find(name);
  return found == nullptr ? otherwise : found->number;
}

std::vector<int64_t> integers_of(const Node& node, std::string_view name,
                                 std::vector<int64_t> otherwise) {
  const NodeAttribute* found = node.find(name);
  return found == nullptr ? otherwise : found->integers;
}

std::string text_of(const Node& node, std::string_view name) {
  const NodeAttribute* found = node.find(name);
  return found == nullptr ? "" : found->text;
}

Importer::Importer(const Model& model, const ModelOptions& options, graph::Builder& net)
    : model_(model), options_(options), net_(net) {
  for (const char* name :
       {"images", "labels", "loss", "top1", "top5", "logits", "embedding", "head"}) {
    layers_.insert(name);
  }
  for (const TensorData& tensor : model.initializers) known_.insert_or_assign(tensor.name, tensor);
  find_live();
  for (const Node& node : model.nodes) {
    if (!live_.contains(&node)) continue;
    for (const std::string& input : node.inputs) readers_[input].push_back(&node);
  }
}

void Importer::find_live() {
  for (const Node& node : model_.nodes) {
    for (const std::string& output : node.outputs) givers_.emplace(output, &node);
  }
  std::vector<std::string> wanted;
  for (const ValueInfo& output : model_.outputs) wanted.push_back(output.name);
  while (!wanted.empty()) {
    const Node* node = giver(wanted.back());
    wanted.pop_back();
    if (node == nullptr || !live_.insert(node).second) continue;
    wanted.insert(wanted.end(), node->inputs.begin(), node->inputs.end());
  }
}

void Importer::require_known() const {
  const Node* first = nullptr;
  std::set<std::string> types;
  size_t count = 0;
  for (const Node& node : model_.nodes) {
    if (node.outputs.empty()) fail_input("{} gives nothing", describe(node));
    if (node.inputs.empty() && node.type != "Constant" && live_.contains(&node)) {
      fail_input("{} reads nothing", describe(node));
    }
    if (find_reader(node) != nullptr || !live_.contains(&node)) continue;
    if (first == nullptr) first = &node;
    types.insert(node.type);
    ++count;
  }
  if (first == nullptr) return;
  fail_input("{} is not supported{}", describe(*first),
             count == 1 ? ""
                        : fmt::format(", nor are {} more (all of them: {})", count - 1,
                                      fmt::join(types, ", ")));
}

// Files of old have their constants among the inputs too.
void Importer::add_inputs() {
  const ValueInfo* images = nullptr;
  for (const ValueInfo& input : model_.inputs) {
    if (known_.contains(input.name)) continue;
    if (images != nullptr) {
      fail_input("it has the inputs '{}' and '{}'; one of images is needed", images->name,
                 input.name);
    }
    images = &input;
  }
  using enum ElementType;
  const bool has_fractions = images != nullptr && (images->type == f32 || images->type == f16 ||
                                                   images->type == bf16 || images->type == f64);
  if (images == nullptr || images->shape.size() != 4 || !has_fractions) {
    fail_input("it has no input of images (batch x channels x height x width, float32)");
  }
  // Channels come last if all that is done with the images is to turn them.
  const std::vector<const Node*>& readers = readers_[images->name];
  const auto turns = [](const Node* node) {
    return node->type == "Transpose" && integers_of(*node, "perm", {}) == kFromLast;
  };
  const bool turned = !readers.empty() && std::all_of(readers.begin(), readers.end(), turns);
  if (turned) turned_input_ = images->name;
  const int64_t height = extent_at(*images, turned ? 1 : 2);
  const int64_t width = extent_at(*images, turned ? 2 : 3);
  if (height != width) fail_input("its images are {}x{}; they must be square", height, width);
  result_.image = std::max<int64_t>(0, height);
  result_.channels = std::max<int64_t>(0, extent_at(*images, turned ? 3 : 1));
  const auto choose = [](int64_t asked, int64_t own, int64_t usual) {
    if (asked > 0) return asked;
    return own > 0 ? own : usual;
  };
  const int64_t side = choose(options_.image, result_.image, kUsualImage);
  const int64_t channels = choose(options_.channels, result_.channels, kUsualChannels);
  known_[images->name] = net_.image(options_.batch, channels, side, side);
}

ImportedNetwork Importer::run() {
  require_known();
  add_inputs();
  if (model_.outputs.size() != 1) {
    fail_input("it has {} outputs; one is needed", model_.outputs.size());
  }
  // What layers are made of may stand behind the nodes that are read together with them.
  for (const Node& node : model_.nodes) {
    if (node.type == "Constant" || folds_constants(node.type)) read(node);
  }
  is_computing_ = true;
  for (const Node& node : model_.nodes) read(node);
  const std::string& name = model_.outputs[0].name;
  const auto found = known_.find(name);
  if (found == known_.end() || !std::holds_alternative<graph::Value>(found->second)) {
    fail_input("nothing computes its output '{}'", name);
  }
  result_.output = std::get<graph::Value>(found->second);
  const graph::Shape& shape = net_.shape(result_.output);
  if (shape.size() != 2) {
    fail_input("its output '{}' is {}; rows of features are needed", name, graph::to_string(shape));
  }
  if (result_.features == 0) result_.features = shape[1];
  return std::move(result_);
}

// Constants at once, in the first of the passes; whatever is computed in the second.
void Importer::read(const Node& node) {
  if (done_.contains(&node) || !live_.contains(&node)) return;
  try {
    if (node.type == "Constant" || fold_constants(*this, node)) {
      if (node.type == "Constant") find_reader(node)(*this, node);
      done_.insert(&node);
    } else if (is_computing_) {
      find_reader(node)(*this, node);
    }
  } catch (const InputError& error) {
    std::string_view clause = error.marked();
    if (clause.ends_with('.')) clause.remove_suffix(1);
    fail_input("{}: {}", describe(node), clause);
  }
}

bool Importer::has_input(const Node& node, size_t input) const {
  return input < node.inputs.size() && !node.inputs[input].empty();
}

graph::Value Importer::value(const Node& node, size_t input) const {
  if (!has_input(node, input)) fail_input("input {} is missing", input);
  const auto found = known_.find(node.inputs[input]);
  if (found == known_.end()) {
    fail_input("it reads '{}', which nothing before it gives", node.inputs[input]);
  }
  if (!std::holds_alternative<graph::Value>(found->second)) {
    fail_input(
        "its input '{}' is {}, which is not supported there", node.inputs[input],
        std::holds_alternative<Pixels>(found->second) ? "made of single pixels" : "a constant");
  }
  return std::get<graph::Value>(found->second);
}

const TensorData* Importer::constant(const Node& node, size_t input) const {
  if (!has_input(node, input)) return nullptr;
  const auto found = known_.find(node.inputs[input]);
  return found == known_.end() ? nullptr : std::get_if<TensorData>(&found->second);
}

const Pixels* Importer::pixels(const Node& node, size_t input) const {
  if (!has_input(node, input)) return nullptr;
  const auto found = known_.find(node.inputs[input]);
  return found == known_.end() ? nullptr : std::get_if<Pixels>(&found->second);
}

const TensorData& Importer::need_constant(const Node& node, size_t input) const {
  if (const TensorData* found = constant(node, input)) return *found;
  fail_input("its input {} must be a constant", input);
}

std::vector<int64_t> Importer::need_integers(const Node& node, size_t input) const {
  return need_constant(node, input).integers();
}

void Importer::set(const Node& node, graph::Value value) { set_output(node, 0, value); }

void Importer::set_output(const Node& node, size_t output, graph::Value value) {
  known_[node.outputs.at(output)] = value;
}

void Importer::set(const Node& node, TensorData constant) {
  if (constant.name.empty()) constant.name = node.outputs.at(0);
  known_[node.outputs.at(0)] = std::move(constant);
}

void Importer::set(const Node& node, Pixels pixels) {
  known_[node.outputs.at(0)] = std::move(pixels);
}

std::string Importer::layer_name(const Node& node, const TensorData* weight) {
  std::string name;
  if (weight != nullptr && weight->name.ends_with(kWeightEnding)) {
    name = weight->name.substr(0, weight->name.size() - kWeightEnding.size());
  }
  if (name.empty()) name = name_of_path(node.name);
  if (name.empty()) name = node.name.empty() ? node.type : node.name;
  std::string unique = name;
  for (int i = 2; !layers_.insert(unique).second; ++i) unique = fmt::format("{}_{}", name, i);
  return unique;
}

void Importer::take_weight(const std::string& name, const TensorData& data) {
  std::vector<int64_t> strides(data.shape.size(), 1);
  for (size_t i = data.shape.size(); i-- > 1;) strides[i - 1] = strides[i] * data.shape[i];
  take_weight(name, data, data.shape, std::move(strides));
}

void Importer::take_weight(const std::string& name, const TensorData& data, graph::Shape shape,
                           std::vector<int64_t> strides) {
  using enum ElementType;
  if (data.type != f32 && data.type != f16 && data.type != f64 && data.type != bf16) {
    fail_input("its weight '{}' has no numbers with fractions", data.name);
  }
  result_.weights.push_back({name, data, std::move(shape), std::move(strides)});
}

const Node* Importer::only_reader(const Node& node) const {
  if (node.outputs.empty()) return nullptr;
  const auto found = readers_.find(node.outputs[0]);
  if (found == readers_.end() || found->second.size() != 1) return nullptr;
  return node.outputs[0] == model_.outputs.at(0).name ? nullptr : found->second.front();
}

bool Importer::is_last(const Node& node) const {
  constexpr std::string_view kPassed[] = {
      "Cast",       "Dropout",    "Flatten", "GlobalAveragePool", "Identity",
      "LogSoftmax", "ReduceMean", "Reshape", "Softmax",           "Squeeze"};
  for (const Node* at = &node; at != nullptr; at = only_reader(*at)) {
    const bool passed = at == &node || std::find(std::begin(kPassed), std::end(kPassed),
                                                 at->type) != std::end(kPassed);
    if (!passed) return false;
    if (at->outputs.at(0) == model_.outputs.at(0).name) return true;
  }
  return false;
}

std::vector<const Node*> Importer::readers(const Node& node) const {
  const auto found = readers_.find(node.outputs.at(0));
  return found == readers_.end() ? std::vector<const Node*>() : found->second;
}

const Node* Importer::giver(const std::string& tensor) const {
  const auto found = givers_.find(tensor);
  return found == givers_.end() ? nullptr : found->second;
}

bool Importer::is_turned_input(const Node& node) const {
  return !turned_input_.empty() && node.inputs.at(0) == turned_input_;
}

void Importer::set_padding(const Node& node, const Padding& padding) {
  padding_[node.outputs.at(0)] = padding;
}

const Padding* Importer::padding_before(const Node& node) const {
  const auto found = padding_.find(node.inputs.at(0));
  return found == padding_.end() ? nullptr : &found->second;
}

bool gives_embedding(const Model& model) {
  if (model.outputs.empty()) return false;
  const std::string& name = model.outputs[0].name;
  const auto gives = [&](const Node& node) {
    return node.type == "BatchNormalization" && !node.outputs.empty() && node.outputs[0] == name;
  };
  return name == kEmbedding || std::any_of(model.nodes.begin(), model.nodes.end(), gives);
}

ImportedNetwork import_model(const Model& model, const ModelOptions& options, graph::Builder& net) {
  try {
    return Importer(model, options, net).run();
  } catch (const InputError& error) {
    fail_input("{}", printable(error.marked()));
  }
}

}  // namespace millrace::models::onnx
