#include "base/output_place.h"

#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace millrace {
namespace {

constexpr int kMostLinks = 40;

[[noreturn]] void fail_place(const std::filesystem::path& path, int reason) {
  fail_input("Cannot write '{}': {}.", path.string(), std::strerror(reason));
}

std::filesystem::path directory_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

// A link of /proc, such as /proc/self/fd/1, leads to something open, which no name replaces.
bool is_open_descriptor(const std::filesystem::path& link) {
  struct statfs status = {};
  return ::statfs(directory_of(link).c_str(), &status) == 0 && status.f_type == PROC_SUPER_MAGIC;
}

}  // namespace

std::filesystem::path OutputPlace::directory() const { return directory_of(target); }

OutputPlace find_output_place(const std::filesystem::path& path) {
  OutputPlace place = {.path = path, .target = path};
  if (path.empty()) fail_place(path, ENOENT);
  for (int links = 0;; ++links) {
    if (!place.target.has_filename()) fail_place(path, EISDIR);
    struct stat status = {};
    if (::lstat(place.target.c_str(), &status) != 0) {
      if (errno == ENOENT) return place;
      fail_place(path, errno);
    }
    const bool link = S_ISLNK(status.st_mode);
    const bool descriptor = link && is_open_descriptor(place.target);
    if (link && !descriptor) {
      if (links == kMostLinks) fail_place(path, ELOOP);
      std::error_code error;
      const auto next = std::filesystem::read_symlink(place.target, error);
      if (error) fail_place(path, error.value());
      place.target = directory_of(place.target) / next;
      continue;
    }
    if (descriptor && ::stat(place.target.c_str(), &status) != 0) fail_place(path, errno);
    if (S_ISDIR(status.st_mode)) fail_place(path, EISDIR);
    place.kind = S_ISREG(status.st_mode) && !descriptor ? OutputKind::file : OutputKind::special;
    place.mode = status.st_mode & 07777;
    place.owner = status.st_uid;
    place.group = status.st_gid;
    return place;
  }
}

}  // namespace millrace
