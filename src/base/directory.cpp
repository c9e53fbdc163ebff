#include "base/directory.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace millrace {
namespace {

template <typename Sync>
void sync_with(const std::filesystem::path& directory, Sync&& sync) {
  const int descriptor = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0 && errno == EACCES) return;  // may be written but not read
  const bool done = descriptor >= 0 && (sync(descriptor) == 0 || errno == EINVAL);
  const int reason = errno;
  if (descriptor >= 0) ::close(descriptor);
  if (!done) fail_input("Cannot flush '{}': {}.", directory.string(), std::strerror(reason));
}

std::filesystem::path above(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

void rename_directory(const std::filesystem::path& from, const std::filesystem::path& to,
                      unsigned flags = 0) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), flags) == 0) return;
  fail_input("Cannot write '{}': {}.", to.string(), std::strerror(errno));
}

}  // namespace

void make_directory(const std::filesystem::path& directory, std::string_view flag) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (!error && !std::filesystem::is_directory(directory, error) && !error) {
    error = std::make_error_code(std::errc::not_a_directory);
  }
  if (!error) return;
  fail_input("{}: the directory '{}' cannot be made: {}.", flag, directory.string(),
             error.message());
}

void make_directory_of(const std::filesystem::path& file, std::string_view flag) {
  if (file.has_parent_path()) make_directory(file.parent_path(), flag);
}

void sync_directory(const std::filesystem::path& directory) { sync_with(directory, ::fsync); }

void flush_file_system(const std::filesystem::path& directory) { sync_with(directory, ::syncfs); }

void replace_directory(const std::filesystem::path& made, const std::filesystem::path& target,
                       const std::filesystem::path& former) {
  sync_directory(made);
  std::error_code ignored;
  if (std::filesystem::exists(std::filesystem::symlink_status(target, ignored))) {
    if (::renameat2(AT_FDCWD, made.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0) {
      rename_directory(made, former);
      sync_directory(above(target));
      return;
    }
    if (errno != EINVAL && errno != ENOSYS) {
      fail_input("Cannot write '{}': {}.", target.string(), std::strerror(errno));
    }
    rename_directory(target, former);
  }
  rename_directory(made, target);
  sync_directory(above(target));
}

uint64_t free_bytes(const std::filesystem::path& directory) {
  struct statvfs status = {};
  if (::statvfs(directory.c_str(), &status) != 0) {
    fail_input("Cannot tell the free space of '{}': {}.", directory.string(), std::strerror(errno));
  }
  return uint64_t{status.f_bavail} * status.f_frsize;
}

}  // namespace millrace
