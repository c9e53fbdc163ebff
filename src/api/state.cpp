// Models of state dictionaries.
#include <stdlib.h>

#include <algorithm>
#include <map>
#include <optional>

#include "api/model.h"
#include "api/temporary.h"
#include "base/error.h"
#include "data/safetensors.h"
#include "models/models.h"

namespace millrace::api {
namespace {

using Shapes = std::map<std::string, graph::Shape, std::less<>>;

constexpr int64_t kCountedClasses = 7919;  // a number that no layer has by itself

// What a model of this name keeps.
Shapes shapes_of(const std::string& name) {
  models::ModelOptions options = models::default_options(name);
  options.batch = 2;
  options.classes = kCountedClasses;
  const graph::Graph graph = models::build_model(name, options);
  Shapes shapes;
  for (graph::TensorId id = 0; id < graph.tensor_count(); ++id) {
    const graph::Tensor& tensor = graph.tensor(id);
    if (tensor.role == graph::Role::parameter || tensor.role == graph::Role::buffer) {
      shapes[tensor.name] = tensor.type.shape;
    }
  }
  return shapes;
}

// The number of classes with which a model has just these tensors; nothing if it has others. A face
// network may lack its classifier.
std::optional<int64_t> classes_that_fit(const Shapes& wanted, const Shapes& given) {
  int64_t classes = 0;
  size_t found = 0;
  for (const auto& [name, shape] : wanted) {
    const auto other = given.find(name);
    if (other == given.end()) {
      if (name.starts_with(graph::kHeadPrefix)) continue;
      return {};
    }
    ++found;
    if (other->second.size() != shape.size()) return {};
    for (size_t i = 0; i < shape.size(); ++i) {
      const int64_t extent = other->second[i];
      const bool counts_classes = shape[i] == kCountedClasses;
      if (counts_classes && classes == 0) classes = extent;
      if (extent != (counts_classes ? classes : shape[i])) return {};
    }
  }
  if (found != given.size()) return {};
  return classes;
}

struct Recognised {
  std::string name;
  int64_t classes;
};

Recognised recognise(const std::vector<NamedTensor>& state, const std::string& name) {
  Shapes given;
  for (const NamedTensor& tensor : state) given[tensor.name] = tensor.shape;
  const std::vector<std::string> names =
      name.empty() ? models::model_names() : std::vector<std::string>{name};
  for (const std::string& one : names) {
    if (const auto classes = classes_that_fit(shapes_of(one), given)) return {one, *classes};
  }
  if (!name.empty()) return {name, 0};
  fail_input("No model has tensors of just these names and shapes; name the one that is meant.");
}

}  // namespace

Model Model::from_state(const std::vector<NamedTensor>& state, std::string name,
                        ModelSettings settings) {
  if (state.empty()) fail_input("The state has no tensors.");
  if (!models::onnx_file(name).empty()) fail_input("'{}' has weights of its own.", name);
  const Recognised model = recognise(state, name);
  if (settings.classes == 0) settings.classes = model.classes;
  const std::shared_ptr<const std::filesystem::path> directory = temporary_directory();
  settings.weights = *directory / "state.safetensors";
  write_state(settings.weights, state, {});
  Model made(model.name, settings);
  made.keep(directory);
  return made;
}

void write_state(const std::filesystem::path& file, const std::vector<NamedTensor>& state,
                 const std::map<std::string, std::string>& metadata) {
  std::vector<data::SafetensorsTensor> described;
  for (const NamedTensor& tensor : state) {
    described.push_back({.name = tensor.name,
                         .dtype = "F32",
                         .shape = tensor.shape,
                         .data = tensor.values.data(),
                         .size = tensor.values.size() * sizeof(float)});
  }
  data::write_safetensors(file, described, metadata);
}

std::shared_ptr<const std::filesystem::path> temporary_directory() {
  std::string pattern = (std::filesystem::temp_directory_path() / "millrace-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) {
    fail_input("Cannot make a directory '{}' for weights.", pattern);
  }
  return {new std::filesystem::path(pattern), [](const std::filesystem::path* path) {
            std::error_code ignored;
            std::filesystem::remove_all(*path, ignored);
            delete path;
          }};
}

}  // namespace millrace::api
