// Files: reading without copies, and writing so that nothing is ever half-written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

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

// Writes to `path` under a temporary name in the same directory; `commit` flushes to the disk
// and renames. Destroyed without commit, it removes the temporary and leaves `path` as it was.
// A large file goes to the disk while it is written, so that little is left to flush at the end.
// Failures throw InputError with the path and the system's reason.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, uint64_t size);
  void write(std::string_view text) { write(text.data(), text.size()); }
  void commit();

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;
  int descriptor_ = -1;
  uint64_t written_ = 0;
  uint64_t flushing_ = 0;  // bytes from the start that are on the disk or on their way
};

std::string read_text(const std::filesystem::path& path);
void write_text(const std::filesystem::path& path, std::string_view text);

// Throws InputError if a file at `path` could not be created or replaced; leaves no trace.
// Called for every output flag before long work starts.
void require_writable(const std::filesystem::path& path, std::string_view flag);

// Makes the directory of an output flag, with those above it. Throws InputError if it cannot.
void make_directory(const std::filesystem::path& directory, std::string_view flag);

// Flushes a directory entry, so that a rename inside it survives a power cut.
void sync_directory(const std::filesystem::path& directory);

}  // namespace millrace
