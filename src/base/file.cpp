#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/lost_pages.h"
#include "base/output_file.h"

namespace millrace {
namespace {

[[noreturn]] void fail_system(std::string_view action, const std::filesystem::path& path) {
  fail_input("Cannot {} '{}': {}.", action, path.string(), std::strerror(errno));
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
    note_mapping(bytes(), path);
  } else {
    ::close(descriptor);
  }
}

MappedFile::~MappedFile() {
  if (data_ == nullptr) return;
  forget_mapping(bytes());
  ::munmap(const_cast<std::byte*>(data_), size_);
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

std::string read_text(const std::filesystem::path& path) {
  const MappedFile file(path);
  std::string text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  expect_no_lost_pages();
  return text;
}

void write_text(const std::filesystem::path& path, std::string_view text) {
  OutputFile file(path);
  file.write(text);
  file.commit();
}

void write_copy(const std::filesystem::path& from, const std::filesystem::path& to) {
  const MappedFile source(from);
  OutputFile file(to);
  file.write(source.bytes().data(), source.size());
  file.commit();
}

void require_writable(const std::filesystem::path& path, std::string_view flag) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    fail_input("{} names '{}', which is a directory; give a file name.", flag, path.string());
  }
  try {
    const OutputPlace place = find_output_place(path);
    if (place.kind == OutputKind::special) {
      if (::access(place.target.c_str(), W_OK) != 0) fail_system("write", path);
      return;
    }
    std::filesystem::create_directories(place.directory());
    const OutputFile probe(path);
  } catch (const std::filesystem::filesystem_error& error) {
    fail_input("{}: the directory of '{}' cannot be made: {}.", flag, path.string(),
               error.code().message());
  } catch (const InputError& error) {
    fail_input("{}: {}", flag, error.marked());
  }
}

}  // namespace millrace
