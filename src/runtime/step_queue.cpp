#include "runtime/step_queue.h"

namespace millrace {

void StepQueue::push(const StepSums& sums) {
  {
    const std::lock_guard lock(mutex_);
    entries_.push_back(sums);
  }
  changed_.notify_all();
}

void StepQueue::close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
}

std::optional<StepSums> StepQueue::pop() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return closed_ || !entries_.empty(); });
  if (entries_.empty()) return std::nullopt;
  const StepSums sums = entries_.front();
  entries_.pop_front();
  return sums;
}

}  // namespace millrace
