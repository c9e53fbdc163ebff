// Image files that someone lists, without classes.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "data/record_source.h"

namespace millrace::data {

// Whether the name ends as those of images do: .jpg, .jpeg, .png, .webp.
bool is_image_name(const std::filesystem::path& path);

// A sentence on files of a set that are none: how many of each kind, and the first of them.
std::string describe_passed_over(const std::vector<std::string>& files);

// The bytes of an image file as a sample; throws BadData.
Sample read_image_file(const std::filesystem::path& path);

// The files in the order given, each with label 0.
std::unique_ptr<RecordSource> open_files(std::vector<std::filesystem::path> files);

}  // namespace millrace::data
