// A file without a name, for what does not fit into memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

namespace millrace {

// Only this process can reach it, and it is gone when the process is. Written from front to end,
// then read in the same way. One thread at a time. Throws InputError naming the directory.
class ScratchFile {
 public:
  explicit ScratchFile(const std::filesystem::path& directory);
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  void write(const void* data, uint64_t size);
  // Gives everything in the order in which it came, in pieces.
  void copy(const std::function<void(const void*, uint64_t)>& take) const;

 private:
  [[noreturn]] void fail(const char* action) const;

  std::filesystem::path directory_;
  int descriptor_ = -1;
};

}  // namespace millrace
