#include "runtime/step_queue.h"

#include <utility>

namespace millrace::runtime {

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
  StepSums sums = {.step = reads->step, .micro_batches = reads->micro_batches, .results = {}};
  sums.results.resize(reads->results.size() / static_cast<size_t>(reads->micro_batches), 0);
  for (size_t i = 0; i < reads->results.size(); ++i) {
    sums.results[i % sums.results.size()] += double{reads->results[i]};
  }
  return sums;
}

}  // namespace millrace::runtime
