// What the last stage tells of each step.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "backend/event.h"

namespace millrace::runtime {

// Sums over the micro-batches of a step that one device ran; a step is complete when all of its
// micro-batches are counted.
struct StepSums {
  int64_t step = 0;  // of the job
  int64_t micro_batches = 0;
  std::vector<double> results;  // in the order in which the stage was asked for them
};

// The results of the micro-batches of a step that one device runs, which it reads into here.
struct StepReads {
  int64_t step = 0;
  int64_t micro_batches = 0;
  std::vector<float> results;  // of one micro-batch behind the other; never moved
  backend::Event read;         // behind which they are there
};

// From devices to whoever follows the training. Any thread may call it.
class StepQueue {
 public:
  void push(std::unique_ptr<StepReads> reads);
  // Nothing more will come.
  void close();
  // Waits for the next entry and for its results; nothing once it is closed and empty.
  std::optional<StepSums> pop();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::unique_ptr<StepReads>> entries_;
  bool closed_ = false;
};

}  // namespace millrace::runtime
