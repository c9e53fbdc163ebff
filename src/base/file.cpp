#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace millrace {
namespace {

constexpr uint64_t kFlushPiece = uint64_t{8} << 20;

[[noreturn]] void fail_system(std::string_view action, const std::filesystem::path& path) {
  fail_input("Cannot {} '{}': {}.", action, path.string(), std::strerror(errno));
}

std::filesystem::path parent_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) fail_system("open", path);
  struct stat status = {};
  if (::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
    if (!S_ISREG(status.st_mode)) errno = EISDIR;
    ::close(descriptor);
    fail_system("read", path);
  }
  size_ = static_cast<uint64_t>(status.st_size);
  if (size_ > 0) {
    void* address = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, descriptor, 0);
    ::close(descriptor);
    if (address == MAP_FAILED) fail_system("map", path);
    data_ = static_cast<const std::byte*>(address);
  } else {
    ::close(descriptor);
  }
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void forget_pages(std::span<const std::byte> part) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<uintptr_t>(part.data()) + page - 1) / page * page;
  const auto end = reinterpret_cast<uintptr_t>(part.data() + part.size()) / page * page;
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

AtomicFile::AtomicFile(std::filesystem::path path) : path_(std::move(path)) {
  temporary_ = path_;
  temporary_ += fmt::format(".partial-{}", ::getpid());
  descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor_ < 0) fail_system("write", path_);
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::write(const void* data, uint64_t size) {
  const auto* cursor = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = ::write(descriptor_, cursor, std::min(size, kFlushPiece));
    if (written < 0) {
      if (errno == EINTR) continue;
      fail_system("write", path_);
    }
    cursor += written;
    size -= static_cast<uint64_t>(written);
    written_ += static_cast<uint64_t>(written);
    if (written_ - flushing_ < kFlushPiece) continue;
    // Only a hint: whether the bytes arrived is for the fsync in commit to say.
    ::sync_file_range(descriptor_, static_cast<off64_t>(flushing_),
                      static_cast<off64_t>(written_ - flushing_), SYNC_FILE_RANGE_WRITE);
    flushing_ = written_;
  }
}

void AtomicFile::commit() {
  if (::fsync(descriptor_) != 0) fail_system("flush", path_);
  if (::close(std::exchange(descriptor_, -1)) != 0 ||
      ::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int reason = errno;
    ::unlink(temporary_.c_str());
    errno = reason;
    fail_system("write", path_);
  }
  sync_directory(parent_of(path_));
}

std::string read_text(const std::filesystem::path& path) {
  const MappedFile file(path);
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

void write_text(const std::filesystem::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

void require_writable(const std::filesystem::path& path, std::string_view flag) {
  if (std::filesystem::is_directory(path)) {
    fail_input("{} names '{}', which is a directory; give a file name.", flag, path.string());
  }
  std::filesystem::path probe = path;
  probe += fmt::format(".probe-{}", ::getpid());
  const int descriptor = ::open(probe.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (descriptor < 0) {
    fail_input("{} names '{}', which cannot be written: {}.", flag, path.string(),
               std::strerror(errno));
  }
  ::close(descriptor);
  ::unlink(probe.c_str());
}

void make_directory(const std::filesystem::path& directory, std::string_view flag) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (!error) return;
  fail_input("{}: the directory '{}' cannot be made: {}.", flag, directory.string(),
             error.message());
}

void sync_directory(const std::filesystem::path& directory) {
  const int descriptor = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  ::fsync(descriptor);
  ::close(descriptor);
}

}  // namespace millrace
