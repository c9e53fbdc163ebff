#include "runtime/step_queue.h"

#include <utility>

namespace millrace {

void StepQueue::push(std::unique_ptr<StepReads> reads) {
  {
    const std::lock_guard lock(mutex_);
    entries_.push_back(std::move(reads));
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
  const std::unique_ptr<StepReads> reads = std::move(entries_.front());
  entries_.pop_front();
  lock.unlock();
  reads->read.wait();
  StepSums sums = {.step = reads->step, .micro_batches = std::ssize(reads->results)};
  for (const auto& [loss, top1, top5] : reads->results) {
    sums.loss += loss;
    sums.top1 += top1;
    sums.top5 += top5;
  }
  return sums;
}

}  // namespace millrace
