#include "cli/subprocess.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>

#include "base/error.h"
#include "cli/command.h"
#include "cli/interruption.h"

namespace millrace::cli {
namespace {

void write_all(int file, const std::string& text) {
  size_t written = 0;
  while (written < text.size()) {
    const ssize_t count = ::write(file, text.data() + written, text.size() - written);
    if (count < 0 && errno != EINTR) return;
    if (count > 0) written += static_cast<size_t>(count);
  }
}

std::string read_all(int file) {
  std::string text;
  std::array<char, 65536> buffer;
  while (true) {
    const ssize_t count = ::read(file, buffer.data(), buffer.size());
    if (count == 0 || (count < 0 && errno != EINTR)) return text;
    if (count > 0) text.append(buffer.data(), static_cast<size_t>(count));
  }
}

[[noreturn]] void run_child(const std::function<std::string()>& work, int file) {
  int status = kExitSuccess;
  std::string text;
  try {
    text = work();
  } catch (const InputError& error) {
    text = error.marked();
    status = kExitBadInput;
  } catch (const std::exception& error) {
    text = marked_text(error);
    status = kExitJobFailed;
  }
  write_all(file, text);
  std::fflush(nullptr);
  ::_exit(status);
}

}  // namespace

std::string in_child(const std::function<std::string()>& work) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) fail_job("There is no pipe for another process.");
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child < 0) fail_job("Another process cannot be started.");
  if (child == 0) {
    forget_interruption();
    ::close(ends[0]);
    run_child(work, ends[1]);
  }
  ::close(ends[1]);
  const std::string text = read_all(ends[0]);
  ::close(ends[0]);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == kExitSuccess) return text;
  if (!WIFEXITED(status)) {
    fail_job("The measuring process was ended by signal {}.", WTERMSIG(status));
  }
  if (WEXITSTATUS(status) == kExitBadInput) throw InputError(text);
  throw JobError(text);
}

}  // namespace millrace::cli
