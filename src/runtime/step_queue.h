// What the last stage tells of each step.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>

namespace millrace {

// Sums over the micro-batches of a step that one device ran; a step is complete when all of its
// micro-batches are counted.
struct StepSums {
  int64_t step = 0;  // of the job
  int64_t micro_batches = 0;
  double loss = 0;
  double top1 = 0;
  double top5 = 0;
};

// From devices to whoever follows the training. Any thread may call it.
class StepQueue {
 public:
  void push(const StepSums& sums);
  // Nothing more will come.
  void close();
  // Waits for the next entry; nothing once it is closed and empty.
  std::optional<StepSums> pop();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<StepSums> entries_;
  bool closed_ = false;
};

}  // namespace millrace
