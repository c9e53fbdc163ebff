#include "bench/line_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/error.h"

extern char** environ;

namespace millrace::bench {

LineProcess::LineProcess(const std::vector<std::string>& command) : name_(command.at(0)) {
  int input[2];
  int output[2];
  if (::pipe2(input, O_CLOEXEC) != 0 || ::pipe2(output, O_CLOEXEC) != 0) {
    fail_job("Cannot make a pipe: {}.", std::strerror(errno));
  }
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, input[0], STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, output[1], STDOUT_FILENO);
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  // A group of its own: Ctrl-C is for us, and the child ends when its input does.
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  const int status =
      ::posix_spawnp(&child_, command[0].c_str(), &actions, &attributes, arguments.data(), environ);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(input[0]);
  ::close(output[1]);
  to_child_ = input[1];
  from_child_ = output[0];
  if (status != 0) {
    child_ = -1;
    fail_job("Cannot start '{}': {}.", name_, std::strerror(status));
  }
}

LineProcess::~LineProcess() {
  if (to_child_ >= 0) ::close(to_child_);
  if (from_child_ >= 0) ::close(from_child_);
  if (child_ > 0) {
    ::kill(child_, SIGTERM);
    ::waitpid(child_, nullptr, 0);
  }
}

Json LineProcess::ask(const std::string& line) {
  if (!line.empty()) {
    const std::string text = line + "\n";
    if (::write(to_child_, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
      fail_job("'{}' no longer listens.", name_);
    }
  }
  while (pending_.find('\n') == std::string::npos) {
    std::array<char, 4096> chunk;
    const ssize_t count = ::read(from_child_, chunk.data(), chunk.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail_job("'{}' ended before it answered '{}'.", name_, line);
    pending_.append(chunk.data(), static_cast<size_t>(count));
  }
  const size_t end = pending_.find('\n');
  const std::string answer = pending_.substr(0, end);
  pending_.erase(0, end + 1);
  const Json parsed = Json::parse(answer, nullptr, false);
  if (parsed.is_discarded()) fail_job("'{}' answered '{}' to '{}'.", name_, answer, line);
  return parsed;
}

}  // namespace millrace::bench
