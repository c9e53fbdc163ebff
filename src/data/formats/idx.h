// IDX, the format of the MNIST family: big-endian header, then bytes; plain or gzipped.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "data/record_source.h"
#include "data/record_writer.h"

namespace millrace::data {

// A uint8 array; `data` may be shorter than the shape asks for if the file is cut off.
struct IdxArray {
  std::vector<uint32_t> shape;
  std::span<const std::byte> data;
};

// Takes any bytes (not gzipped); throws InputError naming `file`.
IdxArray parse_idx(std::span<const std::byte> bytes, std::string_view file);

// Unpacks a gzip stream and checks its sum; throws InputError naming `file`.
std::vector<std::byte> gunzip(std::span<const std::byte> bytes, std::string_view file);

// DIR/train-images-idx3-ubyte and train-labels-idx1-ubyte (t10k-… for the test split), each
// with or without .gz; images are N × H × W or N × H × W × C bytes.
std::unique_ptr<RecordSource> open_idx(const std::filesystem::path& directory, Split split);
// The same from the contents of the two files, which must outlive the source.
std::unique_ptr<RecordSource> open_idx_bytes(std::span<const std::byte> images,
                                             std::span<const std::byte> labels,
                                             std::string_view name);
std::unique_ptr<RecordWriter> create_idx(const std::filesystem::path& directory, Split split);

}  // namespace millrace::data
