// A device's way to the devices that run the same program on their parts.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "comm/group.h"
#include "kernels/kernel.h"
#include "runtime/trace.h"

namespace millrace {

// Owns a thread for what kernels post; collectives that kernels call themselves run on the device's
// thread. The two have a group each, so neither waits for the other. An error on the thread is
// thrown by the next `wait` or `post`.
class DeviceCollectives : public Collectives {
 public:
  DeviceCollectives(Group direct, Group background);
  ~DeviceCollectives() override;

  int members() const override;
  int member() const override;
  void all_reduce(std::span<float> values) override;
  void reduce_scatter(std::span<const float> whole, std::span<float> part, int64_t block) override;
  void all_reduce(std::span<float> values, DataType wire) override;
  void reduce_scatter(std::span<const float> whole, std::span<float> part, int64_t block,
                      DataType wire) override;
  void all_gather(std::span<const std::byte> part, std::span<std::byte> whole,
                  int64_t block_bytes) override;
  void post(int ticket, BackgroundWork& work) override;
  void wait(int ticket) override;

  // Records the background's work and the waits for it; before anything is posted. Borrowed.
  void set_trace(TraceRecorder* trace, int device) {
    trace_ = trace;
    trace_device_ = device;
  }

  const Group& direct() const { return direct_; }
  const Group& background() const { return background_; }

  // Seconds that the background spent at work, and those of them that `wait` stood still for.
  double background_seconds() const;
  double exposed_seconds() const;

 private:
  class Inner;
  struct Posted {
    int64_t number;
    BackgroundWork* work;
  };

  void serve();

  Group direct_;
  Group background_;
  TraceRecorder* trace_ = nullptr;
  int trace_device_ = 0;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Posted> queue_;
  std::vector<int64_t> number_of_ticket_;
  int64_t posted_ = 0;
  int64_t finished_ = 0;
  double background_seconds_ = 0;
  double exposed_seconds_ = 0;
  std::exception_ptr error_;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses everything above
};

}  // namespace millrace
