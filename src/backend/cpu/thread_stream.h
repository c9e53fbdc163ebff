// A stream that is a thread with a queue.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "backend/stream.h"

namespace millrace::backend {

// Nanoseconds of the steady clock.
int64_t steady_now();

// Which commands of a stream failed, and whether that was told. Commands are numbered from 1. Not
// safe by itself.
class StreamFailure {
 public:
  // The command `number` failed; those up to `last`, which were given before, will not run.
  void note(int64_t number, int64_t last, std::exception_ptr error);
  // A command that is given now: whether it must not run, as nobody knows of the failure yet.
  bool swallows(int64_t number);
  // What went wrong with this command, or with one that it had to run after; null: nothing.
  std::exception_ptr error_of(int64_t number) const;
  // Throws it, and has told.
  void check(int64_t number);

 private:
  std::exception_ptr error_;
  int64_t first_ = 0;
  int64_t last_ = 0;
  bool told_ = true;
};

class ThreadStream final : public Stream, private Timeline {
 public:
  // A team of so many threads; 0: as many as any thread has.
  explicit ThreadStream(int threads);
  ~ThreadStream() override;

  void give(const Command& command, const CommandNote& note) override;
  Event record() override;
  void await(const Event& event) override;
  double seconds_communicating() const override;
  void set_observer(StreamObserver* observer) override;

 private:
  struct Entry {
    Entry(const Command& given, const CommandNote& about) : command(given), note(about) {}
    KeptCommand command;
    CommandNote note;
  };

  bool is_done(int64_t number) override;
  void wait(int64_t number) override;
  void serve(int threads);
  void run(const Entry& entry);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Entry> queue_;
  int64_t given_ = 0;
  int64_t done_ = 0;
  StreamFailure failure_;
  double seconds_communicating_ = 0;
  StreamObserver* observer_ = nullptr;
  bool stopping_ = false;
  CommandRunner runner_;
  std::thread thread_;  // last: it uses everything above
};

}  // namespace millrace::backend
