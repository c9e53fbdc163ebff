// What SIGINT (Ctrl-C), SIGTERM, SIGHUP and SIGUSR1 do.
//
// `main` makes one Interruption before anything else. The first signal is answered within
// milliseconds, wherever it comes, by a thread that does nothing else: it says a sentence and
// either ends the program with status 130 or, where work has results to keep, sets `stop` and
// leaves the end to that work. A second signal, 0.3 s later or more, ends the program at once.
// Signals that whoever started the program had ignored stay ignored. Output into a pipe that nobody
// reads (SIGPIPE) ends the program as usual, but counts as a first signal where work has results to
// keep; not in a job of several ranks, where one that ends is told by its launcher.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace millrace::cli {

class Interruption {
 public:
  Interruption();
  ~Interruption();
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

  // From now on a signal ends the program; `sentence`, its last line, says what is kept and how to
  // go on. Ends it here and now if a signal came before.
  void end_at_once(std::string sentence);

  // From now on a signal sets `stop`; `sentence` says what is finished first. The caller ends the
  // program with status 130 soon after that.
  void finish_first(std::string sentence);

  // Who else is told of the first signal, before it is answered.
  void tell(std::function<void()> listener);

  // Says nothing: another process of the job does.
  void be_silent();

  const std::atomic<bool>& stop() const { return stop_; }

 private:
  void listen();
  void answer();
  [[noreturn]] void end();
  void say() const;

  std::mutex mutex_;  // of the sentence and what it stands for
  std::function<void()> told_;
  std::string sentence_;
  const char* cause_ = "";  // why, if that is not a signal that somebody sent; the listener's alone
  bool finishes_ = false;
  bool silent_ = false;
  std::atomic<bool> stop_ = false;
  std::thread listener_;
};

// In a child process of a program with an Interruption: signals end it as usual, and so does the
// end of its parent.
void forget_interruption();

}  // namespace millrace::cli
