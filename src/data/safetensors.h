// Safetensors files: named tensors behind a JSON header, nothing in them is executed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/output_file.h"

namespace millrace::data {

// Bytes of one element of a safetensors type ("F32", "BF16", "I64", ...), 0 if unknown.
uint64_t safetensors_element_size(std::string_view dtype);

// One tensor of a file. `data` points into the file's bytes and lives as long as they do; it is
// aligned to the element size only if the writer took care of that, so copy from it.
struct SafetensorsEntry {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  std::span<const std::byte> data;
};

// What the header says, checked against the bytes that follow it. Entries are in data order.
struct SafetensorsContents {
  std::vector<SafetensorsEntry> entries;
  std::map<std::string, std::string> metadata;
};

// Checks everything (header length, JSON, types, shapes, offsets contiguous and inside the
// file). Takes any bytes; throws InputError naming `file` and the tensor at fault.
SafetensorsContents parse_safetensors(std::span<const std::byte> bytes, std::string_view file);

// A memory-mapped file, validated when opened. Reading is thread-safe; movable, owns the map.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::vector<SafetensorsEntry>& entries() const { return contents_.entries; }
  const std::map<std::string, std::string>& metadata() const { return contents_.metadata; }

  // nullptr if there is no such tensor.
  const SafetensorsEntry* find(std::string_view name) const;
  // Throws InputError naming the file and the nearest tensor name.
  const SafetensorsEntry& at(std::string_view name) const;

 private:
  std::filesystem::path path_;
  MappedFile file_;
  SafetensorsContents contents_;
  std::map<std::string, size_t, std::less<>> by_name_;
};

// One tensor to write: `data` must hold exactly the bytes that dtype and shape ask for.
struct SafetensorsTensor {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  const void* data = nullptr;
  uint64_t size = 0;
};

// Writes a file tensor by tensor without holding it in memory. The constructor takes names,
// types and shapes (`data` and `size` are ignored) and writes the header; `append` takes the
// bytes of the tensors in that order, in pieces of any size; `commit` makes the file appear
// under its name. Without commit the old file stays. One thread at a time.
class SafetensorsWriter {
 public:
  // What commit wrote; the checksum costs no second reading.
  struct Written {
    uint64_t bytes = 0;
    uint32_t crc32 = 0;
  };

  SafetensorsWriter(const std::filesystem::path& path, std::span<const SafetensorsTensor> tensors,
                    const std::map<std::string, std::string>& metadata);
  void append(const void* data, uint64_t size);
  Written commit();

 private:
  void put(const void* data, uint64_t size);

  std::filesystem::path path_;
  OutputFile file_;
  uint64_t remaining_ = 0;
  Written written_;
};

// Writes all tensors at once, wider element types first so that every tensor is aligned.
SafetensorsWriter::Written write_safetensors(const std::filesystem::path& path,
                                             std::span<const SafetensorsTensor> tensors,
                                             const std::map<std::string, std::string>& metadata);

}  // namespace millrace::data
