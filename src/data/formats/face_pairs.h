// Verification sets as InsightFace has them: a Python pickle of (list of encoded images, list of
// booleans), two images for each boolean. Images are bytes or numpy arrays of them, booleans
// Python's or numpy's, in a list or an array.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "data/record_source.h"

namespace millrace::data {

// Images point into the bytes that were parsed.
struct FacePairs {
  std::vector<std::span<const std::byte>> images;  // pair i: images 2i and 2i + 1
  std::vector<bool> same;                          // whether pair i shows one person

  size_t count() const { return same.size(); }
};

// Executes nothing. Takes any bytes; throws InputError naming the file, and the byte offset where
// they are no pickle.
FacePairs parse_face_pairs(std::span<const std::byte> bytes, std::string_view file);

// A set and the file that it lies in.
class FacePairsFile {
 public:
  explicit FacePairsFile(const std::filesystem::path& path)
      : path_(path), file_(path), pairs_(parse_face_pairs(file_.bytes(), path.string())) {}

  const FacePairs& pairs() const { return pairs_; }
  const std::filesystem::path& path() const { return path_; }
  std::span<const std::byte> bytes() const { return file_.bytes(); }

 private:
  std::filesystem::path path_;
  MappedFile file_;
  FacePairs pairs_;
};

// The images of a set, in order, each a record with the label 0.
std::unique_ptr<RecordSource> open_face_pairs(std::shared_ptr<const FacePairsFile> file);

// The same as bytes, which Python's pickle.load gives back as bytes objects and booleans.
std::string encode_face_pairs(const FacePairs& pairs);

}  // namespace millrace::data
