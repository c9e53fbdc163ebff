#include "train/checkpoint_lock.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/file.h"

namespace millrace::train {
namespace {

constexpr const char* kLockFile = "lock";

std::string host_name() {
  std::array<char, 256> name = {};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

// "process 312 on host b, started 2024-05-04 12:30:01 UTC".
std::string describe_owner() {
  return fmt::format("process {} on host {}, started {:%Y-%m-%d %H:%M:%S} UTC", ::getpid(),
                     host_name(), fmt::gmtime(std::time(nullptr)));
}

std::string read_owner(int descriptor) {
  std::array<char, 512> text = {};
  const ssize_t length = ::pread(descriptor, text.data(), text.size(), 0);
  std::string owner(text.data(), static_cast<size_t>(std::max<ssize_t>(length, 0)));
  return owner.substr(0, owner.find('\n'));
}

bool is_of_this_host(std::string_view owner) {
  return owner.empty() || owner.find(" on host " + host_name() + ",") != std::string_view::npos;
}

// Whether the path still names the file that was opened, and not one that replaced it.
bool is_same_file(int descriptor, const std::filesystem::path& path) {
  struct stat opened = {};
  struct stat named = {};
  return ::fstat(descriptor, &opened) == 0 && ::stat(path.c_str(), &named) == 0 &&
         opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
}

[[noreturn]] void fail_held(const std::filesystem::path& lock, const std::string& owner) {
  fail_input(
      "‹checkpoint› names '{}', which {} holds; give another directory or wait until that job "
      "ends, and if it has died on another host remove '{}'.",
      lock.parent_path().string(), owner.empty() ? "another job" : owner, lock.string());
}

}  // namespace

CheckpointLock::CheckpointLock(const std::filesystem::path& directory)
    : path_(directory / kLockFile),
      owner_(describe_owner() + "\n"),
      made_(!std::filesystem::exists(directory)),
      descriptor_(take()) {}

int CheckpointLock::take() const {
  make_directory(path_.parent_path(), "‹checkpoint›");
  while (true) {
    const int descriptor = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (descriptor < 0) {
      fail_input("‹checkpoint› cannot lock '{}': {}.", path_.string(), std::strerror(errno));
    }
    const bool locked = ::flock(descriptor, LOCK_EX | LOCK_NB) == 0;
    if (locked && !is_same_file(descriptor, path_)) {  // its owner removed it meanwhile
      ::close(descriptor);
      continue;
    }
    const std::string owner = read_owner(descriptor);
    if (!locked || !is_of_this_host(owner)) {
      ::close(descriptor);
      fail_held(path_, owner);
    }
    const bool written =
        ::ftruncate(descriptor, 0) == 0 && ::pwrite(descriptor, owner_.data(), owner_.size(), 0) ==
                                               static_cast<ssize_t>(owner_.size());
    if (written) return descriptor;
    const std::string reason = std::strerror(errno);
    ::close(descriptor);
    fail_input("‹checkpoint› cannot write '{}': {}.", path_.string(), reason);
  }
}

bool CheckpointLock::renew() {
  if (is_same_file(descriptor_, path_)) return false;
  ::close(std::exchange(descriptor_, take()));
  return true;
}

CheckpointLock::~CheckpointLock() {
  if (is_same_file(descriptor_, path_)) {  // and not that of another job
    ::unlink(path_.c_str());
    if (made_) ::rmdir(path_.parent_path().c_str());  // unless something is in it
  }
  ::close(descriptor_);
}

void remove_abandoned_lock(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / kLockFile;
  const int descriptor = ::open(path.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC);
  if (descriptor < 0) return;
  if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0 && is_same_file(descriptor, path)) {
    ::unlink(path.c_str());
  }
  ::close(descriptor);
}

}  // namespace millrace::train
