// Files: reading without copies, and texts in and out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "base/directory.h"

namespace millrace {

// A read-only memory map of a whole file. Movable, owns the mapping. Throws InputError naming
// the file if it cannot be opened.
class MappedFile {
 public:
  MappedFile() = default;
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  uint64_t size() const { return size_; }

 private:
  const std::byte* data_ = nullptr;
  uint64_t size_ = 0;
};

// Lets the memory of a part of a mapped file go; it can be read again.
void forget_pages(std::span<const std::byte> part);

std::string read_text(const std::filesystem::path& path);

// As one OutputFile: whole or not at all.
void write_text(const std::filesystem::path& path, std::string_view text);

// Likewise, in pieces.
void write_copy(const std::filesystem::path& from, const std::filesystem::path& to);

// Makes the directories above `path`, and throws InputError if a file there could not be made or
// replaced; leaves no other trace. Called for every output flag before long work starts.
void require_writable(const std::filesystem::path& path, std::string_view flag);

}  // namespace millrace
