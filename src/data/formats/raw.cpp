#include "data/formats/raw.h"

#include <algorithm>
#include <cstring>

#include "base/directory.h"
#include "data/formats/pixel_spool.h"
#include "data/image/image.h"
#include "data/safetensors.h"

namespace millrace::data {
namespace {

class RawSource : public RecordSource {
 public:
  explicit RawSource(const std::filesystem::path& path)
      : path_(path.string()),
        file_(path),
        images_(file_.at("images")),
        labels_(file_.at("labels")) {
    const auto& shape = images_.shape;
    if (images_.dtype != "U8" || shape.size() != 4 || shape[1] < 1 || shape[2] < 1 ||
        shape[1] > kMaxPixels || shape[2] > kMaxPixels || shape[1] * shape[2] > kMaxPixels ||
        (shape[3] != 1 && shape[3] != 3)) {
      fail_input("Tensor 'images' of '{}' must be U8 with shape count × height × width × 1 or 3.",
                 path_);
    }
    if ((labels_.dtype != "I32" && labels_.dtype != "I64") ||
        labels_.shape != std::vector<int64_t>{shape[0]}) {
      fail_input("Tensor 'labels' of '{}' must be I32 or I64 with shape {}.", path_, shape[0]);
    }
    image_size_ = static_cast<uint64_t>(shape[1] * shape[2] * shape[3]);
  }

  uint64_t count() const override { return static_cast<uint64_t>(images_.shape[0]); }

  Sample read(uint64_t index) const override {
    Sample sample;
    sample.bytes = images_.data.subspan(image_size_ * index, image_size_);
    sample.height = static_cast<int>(images_.shape[1]);
    sample.width = static_cast<int>(images_.shape[2]);
    sample.channels = static_cast<int>(images_.shape[3]);
    sample.label = label_at(index);
    return sample;
  }

  int64_t classes() const override {
    int64_t largest = -1;
    for (uint64_t i = 0; i < count(); ++i) largest = std::max(largest, label_at(i));
    return largest + 1;
  }

  std::optional<int64_t> label(uint64_t index) const override { return label_at(index); }

  RecordPlace place(uint64_t index) const override { return {path_, index, image_size_ * index}; }

 private:
  int64_t label_at(uint64_t index) const {
    const auto read = [&](auto label) {
      std::memcpy(&label, labels_.data.data() + index * sizeof(label), sizeof(label));
      return static_cast<int64_t>(label);
    };
    return labels_.dtype == "I32" ? read(int32_t{}) : read(int64_t{});
  }

  std::string path_;
  SafetensorsFile file_;
  const SafetensorsEntry& images_;
  const SafetensorsEntry& labels_;
  uint64_t image_size_ = 0;
};

class RawWriter : public RecordWriter {
 public:
  explicit RawWriter(const std::filesystem::path& path) : path_(path), spool_(path.parent_path()) {
    if (std::filesystem::exists(path)) {
      fail_input("'{}' already exists; name a new file.", path.string());
    }
  }

  void add(const Sample& sample) override { spool_.add(sample); }

  void finish() override {
    const auto count = static_cast<int64_t>(spool_.labels().size());
    const std::vector<SafetensorsTensor> tensors = {
        {"labels", "I64", {count}, nullptr, 0},
        {"images", "U8", {count, spool_.height(), spool_.width(), spool_.channels()}, nullptr, 0}};
    SafetensorsWriter writer(path_, tensors, {});
    writer.append(spool_.labels().data(), spool_.labels().size() * sizeof(int64_t));
    spool_.copy([&](const void* data, uint64_t size) { writer.append(data, size); });
    writer.commit();
  }

 private:
  std::filesystem::path path_;
  PixelSpool spool_;
};

}  // namespace

std::unique_ptr<RecordSource> open_raw(const std::filesystem::path& file) {
  return std::make_unique<RawSource>(file);
}

std::unique_ptr<RecordWriter> create_raw(const std::filesystem::path& file) {
  make_directory_of(file, "The data set");
  return std::make_unique<RawWriter>(file);
}

}  // namespace millrace::data
