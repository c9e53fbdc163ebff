#include "backend/cpu/thread_stream.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/parallel.h"

namespace millrace::backend {

int64_t steady_now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void StreamFailure::note(int64_t number, int64_t last, std::exception_ptr error) {
  error_ = std::move(error);
  first_ = number;
  last_ = last;
  told_ = false;
}

bool StreamFailure::swallows(int64_t number) {
  if (told_) return false;
  last_ = number;
  return true;
}

std::exception_ptr StreamFailure::error_of(int64_t number) const {
  return number < first_ || number > last_ ? nullptr : error_;
}

void StreamFailure::check(int64_t number) {
  const std::exception_ptr error = error_of(number);
  if (!error) return;
  told_ = true;
  std::rethrow_exception(error);
}

ThreadStream::ThreadStream(int threads) : thread_([this, threads] { serve(threads); }) {}

ThreadStream::~ThreadStream() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void ThreadStream::give(const Command& command, const CommandNote& note) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_.swallows(++given_)) {
      done_ = given_;
      ring_if_asked(command);
      return;
    }
    queue_.emplace_back(command, note);
  }
  changed_.notify_all();
}

Event ThreadStream::record() {
  const std::lock_guard lock(mutex_);
  return {this, given_};
}

void ThreadStream::await(const Event& event) {
  if (event.timeline() == this || event.is_done()) return;
  give(command::Await{event}, {});
}

double ThreadStream::seconds_communicating() const {
  const std::lock_guard lock(mutex_);
  return seconds_communicating_;
}

void ThreadStream::set_observer(StreamObserver* observer) {
  const std::lock_guard lock(mutex_);
  observer_ = observer;
}

bool ThreadStream::is_done(int64_t number) {
  const std::lock_guard lock(mutex_);
  failure_.check(number);
  return done_ >= number;
}

void ThreadStream::wait(int64_t number) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_ >= number; });
  failure_.check(number);
}

void ThreadStream::run(const Entry& entry) {
  const Command& command = entry.command.get();
  const bool timed = communicates(command);
  const int64_t begin = timed ? steady_now() : 0;
  runner_.run(command);
  if (!timed) return;
  const int64_t end = steady_now();
  if (observer_ != nullptr && entry.note.subject != nullptr) observer_->ran(entry.note, begin, end);
  const std::lock_guard lock(mutex_);
  seconds_communicating_ += static_cast<double>(end - begin) * 1e-9;
}

void ThreadStream::serve(int threads) {
  if (threads > 0) set_team_size(threads);
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const Entry& next = queue_.front();
    lock.unlock();
    std::exception_ptr error;
    try {
      run(next);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    queue_.pop_front();
    ++done_;
    if (error) {
      failure_.note(done_, given_, error);
      done_ = given_;
      for (const Entry& entry : queue_) ring_if_asked(entry.command.get());
      queue_.clear();
    }
    changed_.notify_all();
  }
}

}  // namespace millrace::backend
