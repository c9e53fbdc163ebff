// Image folder: one directory per class, JPEG and PNG files at any depth below it. Labels are
// the positions of the class names in sorted order.
#pragma once

#include <filesystem>
#include <memory>

#include "data/record_source.h"
#include "data/record_writer.h"

namespace millrace {

std::unique_ptr<RecordSource> open_folder(const std::filesystem::path& directory);

// Names classes by number, and makes a directory for each label up to the largest, so that the
// labels come back the same.
std::unique_ptr<RecordWriter> create_folder(const std::filesystem::path& directory);

}  // namespace millrace
