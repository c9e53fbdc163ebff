// Weights in every format that is taken: safetensors, PyTorch's files, ONNX files, and an index of
// several.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "data/weights/weight_tensor.h"
#include "models/onnx/importer.h"

namespace millrace::data {

// The tensors of a file, of all files that an index (`model.safetensors.index.json`) names, or of
// the one index in a directory. One of InsightFace's `checkpoint_gpu_0.pt`, `checkpoint_gpu_1.pt`,
// … has the centres of all of them, in their order. Those of an ONNX file have the names that its
// network has by `build_model("onnx:…")`. Files are mapped; only with `checked` they are read as a
// whole, to hold them against their checksums. What they say of their tensors is checked in any
// case; throws InputError naming the file at fault. Movable; reading is thread-safe.
class WeightsFile {
 public:
  explicit WeightsFile(const std::filesystem::path& path, bool checked = false);

  const std::filesystem::path& path() const { return path_; }
  const std::vector<WeightTensor>& tensors() const { return tensors_; }
  // Of safetensors and ONNX; others have none.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  // Whether the file tells how they are computed with, too: ONNX.
  bool is_network() const { return !models_.empty(); }

  // nullptr if there is no such tensor.
  const WeightTensor* find(std::string_view name) const;

 private:
  void open(const std::filesystem::path& path);
  void open_onnx(const std::filesystem::path& path);
  void join_centres(const std::filesystem::path& path);
  void open_index(const std::filesystem::path& path, std::string_view text);

  std::filesystem::path path_;
  bool checked_;
  std::vector<MappedFile> files_;
  std::vector<models::onnx::ModelFile> models_;
  std::vector<models::onnx::ImportedWeight> imported_;  // keep what has no place in a file
  std::vector<float> centres_;                          // of several files
  std::vector<WeightTensor> tensors_;
  std::map<std::string, std::string> metadata_;
  std::map<std::string, size_t, std::less<>> by_name_;
};

}  // namespace millrace::data
