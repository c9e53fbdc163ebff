// Raw tensors: a safetensors file with `images` (U8, N × H × W × C) and `labels` (I32 or I64).
#pragma once

#include <filesystem>
#include <memory>

#include "data/record_source.h"
#include "data/record_writer.h"

namespace millrace::data {

std::unique_ptr<RecordSource> open_raw(const std::filesystem::path& file);
std::unique_ptr<RecordWriter> create_raw(const std::filesystem::path& file);

}  // namespace millrace::data
