#include "train/faces/centre_classifier.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>

#include "base/error.h"
#include "kernels/head/storage.h"
#include "models/models.h"
#include "train/centre_shards.h"
#include "train/settled_centres.h"
#include "train/weights.h"

namespace millrace::train {
namespace {

constexpr std::string_view kCentres = "head.centres";
constexpr std::string_view kClassifier = "head.weight";

graph::DataType type_named(const std::string& name) {
  for (const graph::DataType type :
       {graph::DataType::f32, graph::DataType::f16, graph::DataType::bf16}) {
    const JobTensor centres = {.name = std::string(kCentres), .shape = {1, 1}, .stored = type};
    if (describe_tensor(centres).dtype == name) return type;
  }
  fail_input("Class centres have the type {}, which is none of F32, F16 and BF16.", name);
}

TrainedCentres centres_of(const data::SafetensorsTensor& tensor) {
  if (tensor.shape.size() != 2) fail_input("Tensor '{}' is not a matrix of centres.", tensor.name);
  return {
      .classes = tensor.shape[0], .features = tensor.shape[1], .dtype = type_named(tensor.dtype)};
}

std::optional<TrainedCentres> centres_in_shards(const std::filesystem::path& checkpoint) {
  const Manifest manifest = read_manifest(checkpoint);
  const auto shards = std::make_shared<ShardReader>(checkpoint, manifest);
  if (shards->empty()) return {};
  TrainedCentres centres = centres_of(shards->tensors().front());
  const Json head = manifest.job.value("fixed", Json::object()).value("head", Json::object());
  centres.scale = head.value("scale", centres.scale);
  const auto settled = std::make_shared<SettledCentres>(checkpoint, manifest, *shards);
  centres.read = [shards, settled](int64_t first, std::span<std::byte> bytes) {
    settled->read(first, bytes);
  };
  return centres;
}

std::optional<TrainedCentres> centres_in_file(const std::filesystem::path& weights) {
  const auto file = std::make_shared<data::WeightsFile>(weights);
  const data::WeightTensor* entry = file->find(kCentres);
  if (entry == nullptr) return {};
  if (!entry->contiguous()) fail_input("'{}' has scattered class centres.", weights.string());
  TrainedCentres centres = centres_of({.name = entry->name,
                                       .dtype = std::string(data::name_of(entry->type)),
                                       .shape = entry->shape});
  const int64_t row = centres.features * graph::size_of(centres.dtype);
  centres.read = [file, entry, row](int64_t first, std::span<std::byte> bytes) {
    std::memcpy(bytes.data(), entry->data.data() + first * row, bytes.size());
  };
  return centres;
}

}  // namespace

std::optional<TrainedCentres> find_centres(const std::filesystem::path& weights) {
  const bool in_checkpoint = std::filesystem::exists(weights.parent_path() / kManifestFile);
  const bool of_run = weights.filename() == kWeightsFile || weights.filename() == kAverageFile;
  if (in_checkpoint && of_run) {
    if (auto centres = centres_in_shards(weights.parent_path())) return centres;
  }
  return centres_in_file(weights);
}

void require_classifier(const std::string& model, const std::filesystem::path& weights) {
  if (!models::is_face_model(model) || data::WeightsFile(weights).find(kClassifier) != nullptr)
    return;
  fail_input(
      "'{}' has embeddings but no classifier; measure it with ‹verification› or ‹identification›.",
      weights.string());
}

void load_centres_as_classifier(const TrainedCentres& centres, JobState& state) {
  size_t place = 0;
  while (state.tensors().at(place).name != kClassifier) ++place;
  const int64_t features = centres.features;
  const int64_t row = features * graph::size_of(centres.dtype);
  std::vector<float> values(static_cast<size_t>(centres.classes * features));
  std::vector<std::byte> bytes;
  each_few_rows(0, centres.classes, row, [&](int64_t first, int64_t count) {
    bytes.resize(static_cast<size_t>(count * row));
    centres.read(first, bytes);
    for (int64_t i = 0; i < count; ++i) {
      float* centre = values.data() + (first + i) * features;
      kernels::load_row(centres.dtype, bytes.data() + i * row, features, centre);
      double squares = 0;
      for (int64_t j = 0; j < features; ++j) squares += static_cast<double>(centre[j]) * centre[j];
      const double factor =
          centres.scale / std::sqrt(std::max(squares, std::numeric_limits<double>::min()));
      for (int64_t j = 0; j < features; ++j) {
        centre[j] = static_cast<float>(factor * static_cast<double>(centre[j]));
      }
    }
  });
  state.write(place, values);
}

}  // namespace millrace::train
