#include "base/scratch_file.h"

#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "base/error.h"

namespace millrace {

ScratchFile::ScratchFile(const std::filesystem::path& directory)
    : directory_(directory.empty() ? "." : directory) {
  std::string name = (directory_ / ".millrace-scratch-XXXXXX").string();
  descriptor_ = ::mkstemp(name.data());
  if (descriptor_ < 0) fail("write");
  ::unlink(name.c_str());
}

ScratchFile::~ScratchFile() { ::close(descriptor_); }

void ScratchFile::fail(const char* action) const {
  fail_input("Cannot {} in '{}': {}.", action, directory_.string(), std::strerror(errno));
}

void ScratchFile::write(const void* data, uint64_t size) {
  const auto* cursor = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = ::write(descriptor_, cursor, size);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) fail("write");
    cursor += written;
    size -= static_cast<uint64_t>(written);
  }
}

void ScratchFile::copy(const std::function<void(const void*, uint64_t)>& take) const {
  std::vector<char> buffer(1 << 20);
  off_t offset = 0;
  while (true) {
    const ssize_t count = ::pread(descriptor_, buffer.data(), buffer.size(), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail("read back");
    if (count == 0) return;
    take(buffer.data(), static_cast<uint64_t>(count));
    offset += count;
  }
}

}  // namespace millrace
