// Writing data sets in any of the formats that record_source.h reads.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "data/record_source.h"

namespace millrace::data {

struct WriterOptions {
  Split split = Split::train;                 // which files of an idx directory
  uint64_t part_bytes = uint64_t{256} << 20;  // ofrecord starts a new part file beyond this
};

// Takes samples one by one and makes the data set appear when finished. Formats of encoded
// images (ofrecord, recordio, folder) store pixels as PNG; formats of pixels (idx, raw) decode
// images, which must then all have one size. One thread at a time; destroyed without `finish`,
// the file being written does not appear.
class RecordWriter {
 public:
  virtual ~RecordWriter() = default;
  virtual void add(const Sample& sample) = 0;
  virtual void finish() = 0;
};

// Refuses to add to a data set that already exists. Throws InputError.
std::unique_ptr<RecordWriter> create_writer(std::string_view specification,
                                            const WriterOptions& options);

}  // namespace millrace::data
