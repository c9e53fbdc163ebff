#include "data/weights/weights_file.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "base/json_text.h"
#include "data/formats/byte_cursor.h"
#include "data/safetensors.h"
#include "data/weights/torch_file.h"
#include "data/weights/torch_objects.h"

namespace millrace::data {
namespace {

constexpr std::string_view kIndexEnding = ".index.json";
constexpr std::string_view kShardName = "checkpoint_gpu_";

bool is_shard_name(std::string_view name) {
  if (!name.starts_with(kShardName) || !name.ends_with(".pt")) return false;
  name.remove_prefix(kShardName.size());
  name.remove_suffix(3);
  return !name.empty() && name.find_first_not_of("0123456789") == std::string_view::npos;
}

std::filesystem::path index_in(const std::filesystem::path& directory) {
  std::set<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().string().ends_with(kIndexEnding)) found.insert(entry.path());
  }
  if (found.size() == 1) return *found.begin();
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const std::filesystem::path weights = entry.path() / "weights.safetensors";
    const bool inside = std::filesystem::exists(weights);
    if (!inside && entry.path().filename() != weights.filename()) continue;
    fail_input("'{}' is a directory; name the file '{}' in it, or one that `ckpt export` writes.",
               directory.string(), (inside ? weights : entry.path()).string());
  }
  fail_input("'{}' is a directory with {} files *{}, which name weights; name the file.",
             directory.string(), found.size(), kIndexEnding);
}

// What people have instead of weights, told by how it begins.
void refuse_others(std::string_view text, const std::filesystem::path& path) {
  if (text.empty()) fail_input("'{}' is empty; it ought to hold weights.", path.string());
  if (text.starts_with("version https://git-lfs")) {
    fail_input("'{}' is a Git LFS pointer, not the weights; fetch them with 'git lfs pull'.",
               path.string());
  }
  if (text.starts_with("<")) {
    fail_input("'{}' is a page of the web, not weights; download the file itself.", path.string());
  }
  constexpr size_t kTarMark = 257;
  if (text.size() > kTarMark && text.substr(kTarMark).starts_with("ustar")) {
    fail_input("'{}' is a tar archive; give the weights that are in it.", path.string());
  }
}

// Each file that the index names, with the tensors that it is said to have.
std::map<std::string, std::set<std::string>> parse_index(const std::filesystem::path& path,
                                                         std::string_view text) {
  std::map<std::string, std::set<std::string>> files;
  const Json json = parse_json(text);
  const Json names = json.is_object() ? json.value("weight_map", Json()) : Json();
  if (!names.is_object() || names.empty()) {
    fail_input("'{}' is no index of weights: it has no weight_map.", path.string());
  }
  for (const auto& [tensor, file] : names.items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    if (name.empty() || name != std::filesystem::path(name).filename() || name == "..") {
      fail_input("'{}' gives tensor '{}' no file beside itself.", path.string(), tensor);
    }
    files[name].insert(tensor);
  }
  return files;
}

WeightType weight_type_of(models::onnx::ElementType type) {
  switch (type) {
    case models::onnx::ElementType::f64:
      return WeightType::f64;
    case models::onnx::ElementType::f16:
      return WeightType::f16;
    case models::onnx::ElementType::bf16:
      return WeightType::bf16;
    default:
      return WeightType::f32;
  }
}

}  // namespace

WeightsFile::WeightsFile(const std::filesystem::path& path, bool checked)
    : path_(path), checked_(checked) {
  open(std::filesystem::is_directory(path) ? index_in(path) : path);
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (!by_name_.emplace(tensors_[i].name, i).second) {
      fail_input("'{}' has two tensors '{}'.", path.string(), tensors_[i].name);
    }
  }
}

void WeightsFile::open(const std::filesystem::path& path) {
  const std::span<const std::byte> bytes = files_.emplace_back(path).bytes();
  const std::string_view text = as_text(bytes);
  refuse_others(text, path);
  if (text.starts_with("{")) return open_index(path, text);
  if (is_torch_file(bytes)) {
    for (WeightTensor& tensor : parse_torch_file(bytes, path.string(), checked_)) {
      tensors_.push_back(std::move(tensor));
    }
    join_centres(path);
    return;
  }
  if (models::onnx::is_onnx(bytes)) return open_onnx(path);
  SafetensorsContents contents = parse_safetensors(bytes, path.string());
  for (SafetensorsEntry& entry : contents.entries) {
    tensors_.push_back({.name = std::move(entry.name),
                        .type = weight_type_named(entry.dtype),
                        .shape = entry.shape,
                        .strides = plain_strides(entry.shape),
                        .data = entry.data});
  }
  metadata_.merge(contents.metadata);
}

void WeightsFile::join_centres(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  const auto own = std::find_if(tensors_.begin(), tensors_.end(),
                                [](const WeightTensor& tensor) { return tensor.name == kCentres; });
  if (own == tensors_.end() || !is_shard_name(name)) return;
  std::vector<WeightTensor> parts;
  int64_t rows = 0;
  const auto shard = [&](size_t number) {
    return path.parent_path() / fmt::format("{}{}.pt", kShardName, number);
  };
  for (size_t i = 0; i == 0 || std::filesystem::exists(shard(i)); ++i) {
    std::vector<WeightTensor> tensors =
        parse_torch_file(files_.emplace_back(shard(i)).bytes(), shard(i).string(), checked_);
    WeightTensor& last = tensors.back();
    if (last.name != kCentres || last.shape[1] != own->shape[1]) {
      fail_input("'{}' has no centres of {} numbers, as '{}' does.", shard(i).string(),
                 own->shape[1], path.string());
    }
    rows += last.shape[0];
    parts.push_back(std::move(last));
  }
  centres_.resize(static_cast<size_t>(rows * own->shape[1]));
  std::span<float> rest = centres_;
  for (const WeightTensor& part : parts) {
    const auto count = static_cast<size_t>(part.elements());
    read_values(part, rest.first(count));
    rest = rest.subspan(count);
  }
  own->type = WeightType::f32;
  own->shape[0] = rows;
  own->strides = plain_strides(own->shape);
  own->data = std::as_bytes(std::span(centres_));
}

void WeightsFile::open_onnx(const std::filesystem::path& path) {
  const models::onnx::Model& model = models_.emplace_back(path).model();
  graph::Builder net;
  try {
    imported_ = models::onnx::import_model(
                    model, {.batch = 2, .classes = 0, .image = 0, .channels = 0}, net)
                    .weights;
  } catch (const InputError& error) {
    fail_input("'{}' cannot be used as a network: {}.", path.string(), error.marked());
  }
  for (const models::onnx::ImportedWeight& weight : imported_) {
    tensors_.push_back({.name = weight.name,
                        .type = weight_type_of(weight.data.type),
                        .shape = weight.shape,
                        .strides = weight.strides,
                        .data = weight.data.bytes});
  }
  metadata_ = model.metadata;
}

void WeightsFile::open_index(const std::filesystem::path& path, std::string_view text) {
  if (files_.size() > 1) fail_input("'{}' is an index where weights belong.", path.string());
  for (const auto& [file, names] : parse_index(path, text)) {
    const size_t before = tensors_.size();
    open(path.parent_path() / file);
    std::set<std::string> missing = names;
    for (size_t i = before; i < tensors_.size(); ++i) missing.erase(tensors_[i].name);
    if (!missing.empty()) {
      fail_input("'{}' has no tensor '{}', which '{}' says is in it.",
                 (path.parent_path() / file).string(), *missing.begin(), path.string());
    }
  }
}

const WeightTensor* WeightsFile::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

}  // namespace millrace::data
