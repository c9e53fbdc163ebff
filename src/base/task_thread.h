// A thread that is made once and runs one piece of work after the other.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace millrace {

// `start` and `finish` are called in turn by one thread. The work must not throw.
class TaskThread {
 public:
  TaskThread() : thread_([this] { serve(); }) {}
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

  void start(std::function<void()> work) {
    {
      const std::lock_guard lock(mutex_);
      work_ = std::move(work);
    }
    changed_.notify_all();
  }

  // Waits for what was started last.
  void finish() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !work_; });
  }

 private:
  void serve() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return stopping_ || work_; });
      if (!work_) return;
      lock.unlock();
      work_();
      lock.lock();
      work_ = nullptr;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> work_;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses everything above
};

}  // namespace millrace
