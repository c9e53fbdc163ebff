// A moment of a stream.
#pragma once

#include <cstdint>

namespace millrace::backend {

// What events belong to. Any thread may call it; both functions throw what went wrong with the
// commands up to that moment.
class Timeline {
 public:
  virtual bool is_done(int64_t number) = 0;
  virtual void wait(int64_t number) = 0;

 protected:
  ~Timeline() = default;
};

// A value, which must not be used once its stream has ended. One without a stream has happened.
class Event {
 public:
  Event() = default;
  Event(Timeline* timeline, int64_t number) : timeline_(timeline), number_(number) {}

  // Whether all that was enqueued before it was recorded has run.
  bool is_done() const { return timeline_ == nullptr || timeline_->is_done(number_); }
  // Waits for that, in the calling thread.
  void wait() const {
    if (timeline_ != nullptr) timeline_->wait(number_);
  }

  const Timeline* timeline() const { return timeline_; }
  int64_t number() const { return number_; }

 private:
  Timeline* timeline_ = nullptr;
  int64_t number_ = 0;
};

}  // namespace millrace::backend
