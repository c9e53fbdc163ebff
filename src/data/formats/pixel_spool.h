// Collects images of one size on disk until their number is known.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

#include "base/scratch_file.h"
#include "data/sample.h"

namespace millrace::data {

// Decodes samples to pixels and keeps them in a nameless file in `directory`, so that formats
// whose header holds the count need not keep a data set in memory. One thread at a time.
class PixelSpool {
 public:
  explicit PixelSpool(const std::filesystem::path& directory) : file_(directory) {}

  // Throws BadData if the image has another size than the first.
  void add(const Sample& sample);
  // Gives all pixels in the order they came.
  void copy(const std::function<void(const void*, uint64_t)>& take) const { file_.copy(take); }

  int height() const { return height_; }
  int width() const { return width_; }
  int channels() const { return channels_; }
  const std::vector<int64_t>& labels() const { return labels_; }

 private:
  ScratchFile file_;
  int height_ = 0;
  int width_ = 0;
  int channels_ = 0;
  std::vector<int64_t> labels_;
};

}  // namespace millrace::data
