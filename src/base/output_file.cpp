#include "base/output_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <utility>

#include "base/directory.h"
#include "base/error.h"

namespace millrace {
namespace {

constexpr uint64_t kFlushPiece = uint64_t{8} << 20;
constexpr size_t kLongestStem = 200;  // of a temporary, in bytes; a name may have 255
constexpr mode_t kPrivate = 0600;
constexpr mode_t kAsUmaskSays = 0666;

std::filesystem::path temporary_name(const OutputPlace& place, const std::string& ending) {
  const std::string name = place.target.filename().string().substr(0, kLongestStem);
  return place.directory() / ("." + name + ".millrace-partial" + ending);
}

bool is_locked_here(int descriptor, const std::filesystem::path& path) {
  struct stat opened = {};
  struct stat named = {};
  return ::flock(descriptor, LOCK_EX | LOCK_NB) == 0 && ::fstat(descriptor, &opened) == 0 &&
         ::lstat(path.c_str(), &named) == 0 && opened.st_ino == named.st_ino &&
         opened.st_dev == named.st_dev;
}

// Removes a temporary that no process holds locked any more.
void remove_abandoned(const std::filesystem::path& temporary) {
  const int descriptor = ::open(temporary.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (descriptor < 0) return;
  if (is_locked_here(descriptor, temporary)) ::unlink(temporary.c_str());
  ::close(descriptor);
}

int create(const std::filesystem::path& temporary, mode_t mode) {
  return ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
}

}  // namespace

OutputFile::OutputFile(const std::filesystem::path& path, Flush flush)
    : place_(find_output_place(path)), flush_(flush) {
  if (place_.kind == OutputKind::special) {
    descriptor_ = ::open(place_.target.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
    if (descriptor_ < 0) fail("write");
  } else {
    open_temporary();
  }
}

// The first name is always the same, so that what a killed process left is found. Another writer
// of the file holds it locked; then a name that nobody else has does.
void OutputFile::open_temporary() {
  const mode_t mode = place_.kind == OutputKind::fresh ? kAsUmaskSays : kPrivate;
  temporary_ = temporary_name(place_, "");
  descriptor_ = create(temporary_, mode);
  if (descriptor_ < 0 && errno == EEXIST) {
    remove_abandoned(temporary_);
    descriptor_ = create(temporary_, mode);
  }
  if (descriptor_ >= 0 && is_locked_here(descriptor_, temporary_)) return;
  if (descriptor_ < 0 && errno != EEXIST) fail("write");
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
  std::random_device chance;
  do {
    temporary_ = temporary_name(place_, fmt::format("-{:08x}", chance()));
    descriptor_ = create(temporary_, mode);
  } while (descriptor_ < 0 && errno == EEXIST);
  if (descriptor_ < 0) fail("write");
}

OutputFile::~OutputFile() { give_up(); }

void OutputFile::give_up() noexcept {
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  temporary_.clear();
}

void OutputFile::fail(std::string_view action) const {
  fail_input("Cannot {} '{}': {}.", action, place_.path.string(), std::strerror(errno));
}

void OutputFile::write(const void* data, uint64_t size) {
  const auto* cursor = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = ::write(descriptor_, cursor, std::min(size, kFlushPiece));
    if (written < 0 && errno == EINTR) continue;
    if (written == 0) errno = ENOSPC;
    if (written <= 0) fail("write");
    cursor += written;
    size -= static_cast<uint64_t>(written);
    written_ += static_cast<uint64_t>(written);
    if (written_ - flushing_ < kFlushPiece || temporary_.empty()) continue;
    // Only a hint: whether the bytes arrived is for the fsync in commit to say.
    ::sync_file_range(descriptor_, static_cast<off64_t>(flushing_),
                      static_cast<off64_t>(written_ - flushing_), SYNC_FILE_RANGE_WRITE);
    flushing_ = written_;
  }
}

void OutputFile::flush() {
  if (place_.kind == OutputKind::file) {
    // Only root may give a file away; its own permissions it keeps in any case.
    if ((place_.owner != ::geteuid() || place_.group != ::getegid()) &&
        ::fchown(descriptor_, place_.owner, place_.group) != 0 && errno != EPERM) {
      fail("give its owner to");
    }
    if (::fchmod(descriptor_, place_.mode) != 0) fail("give its permissions to");
  }
  if (flush_ == Flush::at_commit && ::fsync(descriptor_) != 0) fail("flush");
}

void OutputFile::commit() {
  if (temporary_.empty()) {
    if (::close(std::exchange(descriptor_, -1)) != 0) fail("write");
    return;
  }
  flush();
  if (::close(std::exchange(descriptor_, -1)) != 0 ||
      ::rename(temporary_.c_str(), place_.target.c_str()) != 0) {
    const int reason = errno;
    give_up();
    errno = reason;
    fail("write");
  }
  temporary_.clear();
  if (flush_ == Flush::at_commit) sync_directory(place_.directory());
}

}  // namespace millrace
