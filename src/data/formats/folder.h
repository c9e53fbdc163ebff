// Image folder: one directory per class, JPEG and PNG files at any depth below it. Labels are
// the positions of the class names in sorted order, or in the order that is given.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/record_source.h"
#include "data/record_writer.h"

namespace millrace::data {

// Sorted. Throws InputError if the directory cannot be read.
std::vector<std::string> folder_classes(const std::filesystem::path& directory);

// With `names`, a class that has images and is not among them throws InputError.
std::unique_ptr<RecordSource> open_folder(const std::filesystem::path& directory,
                                          const std::vector<std::string>& names = {});

// Names classes by number, and makes a directory for each label up to the largest, so that the
// labels come back the same.
std::unique_ptr<RecordWriter> create_folder(const std::filesystem::path& directory);

}  // namespace millrace::data
