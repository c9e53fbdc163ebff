// A thread that is made once and runs one piece of work after the other.
#pragma once

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace millrace {

// Work is started and waited for in turn, by one thread.
class TaskThread {
 public:
  // `rest`, if given, is run once when there was no work for a while.
  explicit TaskThread(std::function<void()> rest = {})
      : rest_(std::move(rest)), thread_([this] { serve(); }) {}
  TaskThread(const TaskThread&) = delete;
  TaskThread& operator=(const TaskThread&) = delete;
  ~TaskThread() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  // Runs `work` and waits for it; allocates nothing.
  void run(const std::function<void()>& work) {
    begin(work);
    finish();
  }

  void start(std::function<void()> work) {
    started_ = std::move(work);
    begin(started_);
  }

  // Waits for what was started last, and rethrows its exception.
  void finish() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return work_ == nullptr; });
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

 private:
  void begin(const std::function<void()>& work) {
    {
      const std::lock_guard lock(mutex_);
      work_ = &work;
    }
    changed_.notify_all();
  }

  void serve() {
    std::unique_lock lock(mutex_);
    while (true) {
      const auto is_called = [this] { return stopping_ || work_ != nullptr; };
      if (rest_ && !changed_.wait_for(lock, kWhile, is_called)) {
        lock.unlock();
        rest_();
        lock.lock();
      }
      changed_.wait(lock, is_called);
      if (stopping_) return;
      const std::function<void()>* work = work_;
      lock.unlock();
      std::exception_ptr error;
      try {
        (*work)();
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      error_ = error;
      work_ = nullptr;
      changed_.notify_all();
    }
  }

  static constexpr std::chrono::milliseconds kWhile{3};

  const std::function<void()> rest_;
  std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<void()>* work_ = nullptr;
  std::function<void()> started_;
  std::exception_ptr error_;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses everything above
};

}  // namespace millrace
