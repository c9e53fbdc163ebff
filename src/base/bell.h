// Wakes a thread that waits for any of several things.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace millrace {

// Safe from any thread.
class Bell {
 public:
  void ring();
  int64_t rings() const;
  // Returns once it has rung more often than `known`.
  void wait(int64_t known) const;

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  int64_t rings_ = 0;
};

}  // namespace millrace
