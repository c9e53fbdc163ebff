// OFRecord: a directory of files part-00000, part-00001, ...; each a sequence of a 64-bit
// length and a protobuf message with the image under "encoded" and its "class/label".
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/record_source.h"
#include "data/record_writer.h"

namespace millrace::data {

// One record found in a file; `damage` says why its message cannot be reached, if so.
struct OfrecordEntry {
  uint64_t offset = 0;
  uint64_t length = 0;
  std::string damage;
};

// Lists the records of a whole file from their lengths; damage ends the list with one entry
// that says so. Takes any bytes.
std::vector<OfrecordEntry> scan_ofrecord(std::span<const std::byte> file);

// Image and label of one message. Takes any bytes, throws BadData; `sample.bytes` points into
// `message`.
Sample parse_ofrecord(std::span<const std::byte> message);

std::string encode_ofrecord(std::span<const std::byte> image, int64_t label);

std::unique_ptr<RecordSource> open_ofrecord(const std::filesystem::path& directory);
std::unique_ptr<RecordWriter> create_ofrecord(const std::filesystem::path& directory,
                                              const WriterOptions& options);

}  // namespace millrace::data
