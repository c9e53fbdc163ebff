#include "cli/image_list.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <iostream>

#include "base/error.h"
#include "base/text.h"
#include "data/formats/files.h"

namespace millrace::cli {
namespace {

constexpr size_t kLongestName = 4096;  // in bytes

void add_place(const std::filesystem::path& path, std::vector<std::filesystem::path>& files) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    fail_input("'{}' does not exist.", printable(path.string()));
  }
  if (!std::filesystem::is_directory(path)) {
    files.push_back(path);
    return;
  }
  const size_t first = files.size();
  try {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
      if (entry.is_regular_file() && data::is_image_name(entry.path()))
        files.push_back(entry.path());
    }
  } catch (const std::filesystem::filesystem_error& fault) {
    fail_input("Cannot read directory '{}': {}.", path.string(), fault.code().message());
  }
  if (files.size() == first) {
    fail_input("'{}' has no .jpg, .jpeg, .png or .webp files in it.", path.string());
  }
  std::sort(files.begin() + static_cast<ptrdiff_t>(first), files.end());
}

[[noreturn]] void fail_list() {
  fail_input("Standard input has no list of files, one a line; name an image by its path instead.");
}

}  // namespace

std::vector<std::filesystem::path> list_images(const std::vector<std::string>& arguments) {
  std::vector<std::filesystem::path> files;
  for (const std::string& argument : arguments) {
    if (argument != "-") {
      add_place(argument, files);
      continue;
    }
    for (std::string line; std::getline(std::cin, line);) {
      if (line.ends_with('\r')) line.pop_back();
      if (line.find_first_not_of(" \t") == std::string::npos) continue;
      if (line.find('\0') != std::string::npos || line.size() > kLongestName) fail_list();
      add_place(line, files);
    }
  }
  if (files.empty()) {
    fail_input("Name the images: files, directories, or - for a list on standard input.");
  }
  return files;
}

}  // namespace millrace::cli
