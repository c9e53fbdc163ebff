#include "data/formats/files.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <utility>

#include "base/text.h"

namespace millrace::data {
namespace {

constexpr std::streamoff kMaxFileBytes = 1 << 30;

class FilesSource : public RecordSource {
 public:
  explicit FilesSource(std::vector<std::filesystem::path> files) : files_(std::move(files)) {}

  uint64_t count() const override { return files_.size(); }
  Sample read(uint64_t index) const override { return read_image_file(files_[index]); }
  RecordPlace place(uint64_t index) const override {
    return {files_[index].string(), index, 0, true};
  }

 private:
  std::vector<std::filesystem::path> files_;
};

std::string lower_extension(const std::filesystem::path& path) {
  std::string extension = path.extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return extension;
}

}  // namespace

std::string describe_passed_over(const std::vector<std::string>& files) {
  std::map<std::string, size_t> counts;
  for (const std::string& file : files) ++counts[printable(lower_extension(file))];
  std::vector<std::string> kinds;
  for (const auto& [extension, count] : counts) {
    kinds.push_back(fmt::format("{} {}", count, extension.empty() ? "without one" : extension));
  }
  return fmt::format(
      "{} {} passed over, as images end in .jpg, .jpeg, .png or .webp: {}; '{}' is {}.",
      files.size(), files.size() == 1 ? "file is" : "files are", fmt::join(kinds, ", "),
      printable(files.front()), files.size() == 1 ? "it" : "the first");
}

bool is_image_name(const std::filesystem::path& path) {
  const std::string extension = lower_extension(path);
  return extension == ".jpg" || extension == ".jpeg" || extension == ".png" || extension == ".webp";
}

Sample read_image_file(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = stream ? std::streamoff(stream.tellg()) : -1;
  if (size < 0 || size > kMaxFileBytes) fail_data("the file cannot be read");
  Sample sample;
  sample.storage.resize(static_cast<size_t>(size));
  stream.seekg(0);
  if (!stream.read(reinterpret_cast<char*>(sample.storage.data()), size)) {
    fail_data("the file cannot be read");
  }
  sample.bytes = sample.storage;
  return sample;
}

std::unique_ptr<RecordSource> open_files(std::vector<std::filesystem::path> files) {
  return std::make_unique<FilesSource>(std::move(files));
}

}  // namespace millrace::data
