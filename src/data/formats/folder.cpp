#include "data/formats/folder.h"

#include <algorithm>
#include <fstream>

#include "base/directory.h"
#include "base/output_file.h"
#include "base/text.h"
#include "data/formats/files.h"
#include "data/image/codec.h"

namespace millrace::data {
namespace {

constexpr int64_t kMaxClasses = 1'000'000;

// What programs keep beside images: ".thumbnails/a.jpg", "._a.jpg".
bool is_hidden(const std::filesystem::path& path, const std::filesystem::path& below) {
  const std::filesystem::path own = path.lexically_relative(below);
  return std::any_of(own.begin(), own.end(),
                     [](const auto& part) { return part.string().starts_with('.'); });
}

class FolderSource : public RecordSource {
 public:
  FolderSource(const std::filesystem::path& directory, const std::vector<std::string>& names)
      : classes_(names) {
    const std::vector<std::string> found = folder_classes(directory);
    if (classes_.empty()) {
      for (const std::string& name : found) classes_.push_back(printable(name));
    }
    try {
      for (const std::string& name : found) list(directory / name, name);
      for (const auto& entry : std::filesystem::directory_iterator(directory)) pass_over(entry);
    } catch (const std::filesystem::filesystem_error& error) {
      fail_input("Cannot read directory '{}': {}.", directory.string(), error.code().message());
    }
    if (files_.empty() && found.empty()) fail_without_classes(directory);
    if (files_.empty()) {
      fail_input("'{}' has no class directories with .jpg, .jpeg, .png or .webp files in them{}",
                 directory.string(),
                 passed_over_.empty() ? "." : "; " + describe_passed_over(passed_over_));
    }
  }

  uint64_t count() const override { return files_.size(); }

  Sample read(uint64_t index) const override {
    const File& file = files_[index];
    Sample sample = read_image_file(file.path);
    sample.label = file.label;
    return sample;
  }

  RecordPlace place(uint64_t index) const override { return {files_[index].path, index, 0, true}; }
  std::vector<std::string> class_names() const override { return classes_; }
  int64_t classes() const override { return static_cast<int64_t>(classes_.size()); }
  std::optional<int64_t> label(uint64_t index) const override { return files_[index].label; }
  std::vector<std::string> passed_over() const override { return passed_over_; }

 private:
  struct File {
    std::string path;
    int64_t label;
  };

  void pass_over(const std::filesystem::directory_entry& entry) {
    if (!entry.is_regular_file() || entry.path().filename().string().starts_with('.')) return;
    passed_over_.push_back(printable(entry.path().string()));
  }

  void list(const std::filesystem::path& below, const std::string& name) {
    const size_t first = files_.size();
    const auto place = std::find(classes_.begin(), classes_.end(), printable(name));
    for (const auto& entry : std::filesystem::recursive_directory_iterator(below)) {
      if (is_hidden(entry.path(), below)) continue;
      if (!entry.is_regular_file() || !is_image_name(entry.path())) {
        pass_over(entry);
        continue;
      }
      if (place == classes_.end()) fail_unknown(below, name);
      files_.push_back({entry.path().string(), place - classes_.begin()});
    }
    std::sort(passed_over_.begin(), passed_over_.end());
    std::sort(files_.begin() + static_cast<std::ptrdiff_t>(first), files_.end(),
              [](const File& a, const File& b) { return a.path < b.path; });
  }

  [[noreturn]] void fail_without_classes(const std::filesystem::path& directory) const {
    const bool has_images =
        std::any_of(passed_over_.begin(), passed_over_.end(),
                    [](const std::string& file) { return is_image_name(file); });
    fail_input("'{}' has {}; put the images of each class into a directory with its name.",
               directory.string(), has_images ? "images but no directories" : "no directories");
  }

  [[noreturn]] void fail_unknown(const std::filesystem::path& path, const std::string& name) const {
    const std::string close = nearest(name, classes_);
    fail_input("'{}' is a class that the network was not trained on{}; it knows {} others.",
               path.string(), close.empty() ? "" : fmt::format(" (did you mean '{}'?)", close),
               classes_.size());
  }

  std::vector<std::string> classes_;
  std::vector<File> files_;
  std::vector<std::string> passed_over_;
};

class FolderWriter : public RecordWriter {
 public:
  explicit FolderWriter(std::filesystem::path directory) : directory_(std::move(directory)) {
    make_directory(directory_, "The data set");
    if (!std::filesystem::is_empty(directory_)) {
      fail_input("'{}' is not empty; name a new directory.", directory_.string());
    }
  }

  void add(const Sample& sample) override {
    if (sample.label < 0 || sample.label >= kMaxClasses) {
      fail_data("its label {} is outside 0 to {}", sample.label, kMaxClasses - 1);
    }
    while (classes_ <= sample.label) {
      make_directory(class_directory(classes_++), "The data set");
    }
    const EncodedImage image(sample);
    const char* extension = is_jpeg(image.bytes()) ? "jpg" : "png";
    const auto path =
        class_directory(sample.label) / fmt::format("{:08}.{}", written_++, extension);
    OutputFile file(path, OutputFile::Flush::later);
    file.write(image.bytes().data(), image.bytes().size());
    file.commit();
  }

  void finish() override { flush_file_system(directory_); }

 private:
  std::filesystem::path class_directory(int64_t label) const {
    return directory_ / fmt::format("{:06}", label);
  }

  std::filesystem::path directory_;
  int64_t classes_ = 0;
  uint64_t written_ = 0;
};

}  // namespace

std::vector<std::string> folder_classes(const std::filesystem::path& directory) {
  std::vector<std::string> names;
  try {
    for (const auto& entry : std::filesystem::directory_iterator(directory)) {
      const std::string name = entry.path().filename().string();
      if (entry.is_directory() && !name.starts_with('.')) names.push_back(name);
    }
  } catch (const std::filesystem::filesystem_error& error) {
    fail_input("Cannot read directory '{}': {}.", directory.string(), error.code().message());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::unique_ptr<RecordSource> open_folder(const std::filesystem::path& directory,
                                          const std::vector<std::string>& names) {
  return std::make_unique<FolderSource>(directory, names);
}

std::unique_ptr<RecordWriter> create_folder(const std::filesystem::path& directory) {
  return std::make_unique<FolderWriter>(directory);
}

}  // namespace millrace::data
