// Writing a file so that it is whole or not there.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "base/output_place.h"

namespace millrace {

// The one way to make or replace a file. What is written goes to a temporary in the directory of
// the target; `commit` flushes it to the disk, gives it the permissions of what it replaces,
// renames it and flushes the directory. Until then, and after any failure, the target is as it was.
// Without commit the temporary is removed; one that a killed process left is removed by the next
// writer of the same file. Symbolic links are followed; devices and pipes are written through, at
// once.
//
// A large file goes to the disk while it is written, so that little is left to flush at the end.
// Failures throw InputError with the path and the system's reason. One thread at a time.
class OutputFile {
 public:
  enum class Flush : uint8_t {
    at_commit,
    later,  // for one of very many, whose writer calls flush_file_system after the last
  };

  explicit OutputFile(const std::filesystem::path& path, Flush flush = Flush::at_commit);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(const void* data, uint64_t size);
  void write(std::string_view text) { write(text.data(), text.size()); }
  void commit();

 private:
  void open_temporary();
  void flush();
  void give_up() noexcept;
  [[noreturn]] void fail(std::string_view action) const;

  OutputPlace place_;
  Flush flush_;
  std::filesystem::path temporary_;  // empty where the target is written through
  int descriptor_ = -1;
  uint64_t written_ = 0;
  uint64_t flushing_ = 0;  // bytes from the start that are on the disk or on their way
};

}  // namespace millrace
