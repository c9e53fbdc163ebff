// Preloaded into a program, spoils one of the calls by which it changes files below a directory.
//
// MILLRACE_FAULT_BELOW   the directory
// MILLRACE_FAULT         what happens: the name of an error; kill; half (of a write, then kill);
//                        vanish (MILLRACE_FAULT_VANISHES is renamed away, then the call is made)
// MILLRACE_FAULT_AT      at which of the calls, from 1; 0 only counts
// MILLRACE_FAULT_FREE    the bytes that every file system says to have left
// MILLRACE_FAULT_LOG     gets a line for every call: its number, name and thread
//
// A full disk stays full: ENOSPC and EDQUOT hit every later call that needs space, EROFS every
// later call. EIO hits one.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <atomic>
#include <string>

namespace {

constexpr int kMostDescriptors = 4096;
std::atomic<bool> watched[kMostDescriptors];
std::atomic<long> calls = 0;

const char* setting(const char* name) {
  const char* value = getenv(name);
  return value == nullptr ? "" : value;
}

bool is_below(const char* path) {
  static const std::string directory = std::string(setting("MILLRACE_FAULT_BELOW")) + "/";
  std::string whole = path;
  if (path[0] != '/') {
    char here[4096];
    if (syscall(SYS_getcwd, here, sizeof(here)) < 0) return false;
    whole = std::string(here) + "/" + path;
  }
  return directory.size() > 1 && whole.compare(0, directory.size(), directory) == 0;
}

bool is_watched(int descriptor) {
  return descriptor >= 0 && descriptor < kMostDescriptors && watched[descriptor];
}

void log_call(long number, const char* name) {
  const char* log = setting("MILLRACE_FAULT_LOG");
  if (*log == '\0') return;
  const int file = static_cast<int>(
      syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  const std::string line =
      std::to_string(number) + " " + name + " " + std::to_string(syscall(SYS_gettid)) + "\n";
  if (syscall(SYS_write, file, line.data(), line.size()) < 0) abort();
  syscall(SYS_close, file);
}

int error_number(const std::string& fault) {
  if (fault == "ENOSPC") return ENOSPC;
  if (fault == "EDQUOT") return EDQUOT;
  if (fault == "EIO") return EIO;
  if (fault == "EROFS") return EROFS;
  return 0;
}

enum class Need { space, none };

// True if the call is to fail, with errno set.
bool spoil(const char* name, Need need, int descriptor = -1, const void* data = nullptr,
           size_t size = 0) {
  static const std::string fault = setting("MILLRACE_FAULT");
  static const long at = atol(setting("MILLRACE_FAULT_AT"));
  const long number = ++calls;
  log_call(number, name);
  if (at == 0 || number < at) return false;
  const int error = error_number(fault);
  if (error != 0) {
    const bool full = error == ENOSPC || error == EDQUOT;
    if (number > at && error == EIO) return false;
    if (full && need == Need::none) return false;
    errno = error;
    return true;
  }
  if (number > at) return false;
  if (fault == "vanish") {
    const std::string from = setting("MILLRACE_FAULT_VANISHES");
    syscall(SYS_renameat2, AT_FDCWD, from.c_str(), AT_FDCWD, (from + ".gone").c_str(), 0);
    return false;
  }
  if (fault == "half" && data != nullptr && size > 1) {
    if (syscall(SYS_write, descriptor, data, size / 2) < 0) abort();
  }
  syscall(SYS_kill, getpid(), SIGKILL);
  return true;
}

int open_file(int directory, const char* path, int flags, mode_t mode) {
  const bool changes = (flags & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC)) != 0;
  const bool below = (directory == AT_FDCWD || path[0] == '/') && is_below(path);
  const bool creates = (flags & (O_CREAT | O_TRUNC)) != 0;
  if (changes && below && spoil("open", creates ? Need::space : Need::none)) return -1;
  const int file = static_cast<int>(syscall(SYS_openat, directory, path, flags, mode));
  if (file >= 0 && file < kMostDescriptors)
    watched[file] = below && (changes || flags & O_DIRECTORY);
  return file;
}

}  // namespace

#define TAKE_MODE(flags)                                       \
  mode_t mode = 0;                                             \
  if (((flags)&O_CREAT) || ((flags)&O_TMPFILE) == O_TMPFILE) { \
    va_list more;                                              \
    va_start(more, flags);                                     \
    mode = va_arg(more, mode_t);                               \
    va_end(more);                                              \
  }

extern "C" {

int open(const char* path, int flags, ...) {
  TAKE_MODE(flags)
  return open_file(AT_FDCWD, path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  TAKE_MODE(flags)
  return open_file(AT_FDCWD, path, flags, mode);
}
int openat(int directory, const char* path, int flags, ...) {
  TAKE_MODE(flags)
  return open_file(directory, path, flags, mode);
}
int openat64(int directory, const char* path, int flags, ...) {
  TAKE_MODE(flags)
  return open_file(directory, path, flags, mode);
}
int __open_2(const char* path, int flags) { return open_file(AT_FDCWD, path, flags, 0); }
int __open64_2(const char* path, int flags) { return open_file(AT_FDCWD, path, flags, 0); }

int mkstemp(char* pattern) {
  for (int i = 0; i < 100; ++i) {
    const std::string digits = std::to_string(1'000'000 + (getpid() * 100 + i) % 1'000'000);
    memcpy(pattern + strlen(pattern) - 6, digits.data() + 1, 6);
    const int file = open_file(AT_FDCWD, pattern, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file >= 0 || errno != EEXIST) return file;
  }
  return -1;
}
int mkstemp64(char* pattern) { return mkstemp(pattern); }

ssize_t write(int file, const void* data, size_t size) {
  if (is_watched(file) && spoil("write", Need::space, file, data, size)) return -1;
  return syscall(SYS_write, file, data, size);
}
ssize_t pwrite(int file, const void* data, size_t size, off_t offset) {
  if (is_watched(file) && spoil("pwrite", Need::space)) return -1;
  return syscall(SYS_pwrite64, file, data, size, offset);
}
ssize_t writev(int file, const struct iovec* pieces, int count) {
  if (is_watched(file) && spoil("writev", Need::space)) return -1;
  return syscall(SYS_writev, file, pieces, count);
}
int ftruncate(int file, off_t size) {
  if (is_watched(file) && spoil("ftruncate", Need::none)) return -1;
  return static_cast<int>(syscall(SYS_ftruncate, file, size));
}
int fsync(int file) {
  if (is_watched(file) && spoil("fsync", Need::space)) return -1;
  return static_cast<int>(syscall(SYS_fsync, file));
}
int syncfs(int file) {
  if (is_watched(file) && spoil("syncfs", Need::space)) return -1;
  return static_cast<int>(syscall(SYS_syncfs, file));
}
int fchmod(int file, mode_t mode) {
  if (is_watched(file) && spoil("fchmod", Need::none)) return -1;
  return static_cast<int>(syscall(SYS_fchmod, file, mode));
}
int fchown(int file, uid_t owner, gid_t group) {
  if (is_watched(file) && spoil("fchown", Need::none)) return -1;
  return static_cast<int>(syscall(SYS_fchown, file, owner, group));
}
int close(int file) {
  const bool counted = is_watched(file);
  if (counted) watched[file] = false;
  const bool fails = counted && spoil("close", Need::none);
  const int reason = errno;
  const int result = static_cast<int>(syscall(SYS_close, file));
  if (fails) errno = reason;
  return fails ? -1 : result;
}
int mkdir(const char* path, mode_t mode) {
  if (is_below(path) && spoil("mkdir", Need::space)) return -1;
  return static_cast<int>(syscall(SYS_mkdirat, AT_FDCWD, path, mode));
}
int rmdir(const char* path) {
  if (is_below(path) && spoil("rmdir", Need::none)) return -1;
  return static_cast<int>(syscall(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR));
}
int unlink(const char* path) {
  if (is_below(path) && spoil("unlink", Need::none)) return -1;
  return static_cast<int>(syscall(SYS_unlinkat, AT_FDCWD, path, 0));
}
int unlinkat(int directory, const char* path, int flags) {
  const bool below =
      directory == AT_FDCWD || path[0] == '/' ? is_below(path) : is_watched(directory);
  if (below && spoil("unlinkat", Need::none)) return -1;
  return static_cast<int>(syscall(SYS_unlinkat, directory, path, flags));
}
int rename(const char* from, const char* to) {
  if (is_below(to) && spoil("rename", Need::space)) return -1;
  return static_cast<int>(syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}
int renameat2(int from_directory, const char* from, int to_directory, const char* to,
              unsigned flags) {
  if (is_below(to) && spoil("renameat2", Need::space)) return -1;
  return static_cast<int>(syscall(SYS_renameat2, from_directory, from, to_directory, to, flags));
}

int statvfs(const char* path, struct statvfs* status) {
  struct statfs facts = {};
  if (syscall(SYS_statfs, path, &facts) != 0) return -1;
  *status = {};
  status->f_bsize = status->f_frsize = static_cast<unsigned long>(facts.f_bsize);
  status->f_bavail = facts.f_bavail;
  const char* free = setting("MILLRACE_FAULT_FREE");
  if (*free == '\0') return 0;
  status->f_frsize = 1;
  status->f_bavail = static_cast<fsblkcnt_t>(atoll(free));
  return 0;
}
int statvfs64(const char* path, struct statvfs64* status) {
  return statvfs(path, reinterpret_cast<struct statvfs*>(status));
}

}  // extern "C"
