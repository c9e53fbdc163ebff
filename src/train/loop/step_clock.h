// How long steps take.
#pragma once

#include <atomic>
#include <chrono>
#include <vector>

namespace millrace::train {

// Times one step after the other. `wait` may be called by any thread while steps run, everything
// else by the loop's.
class StepClock {
 public:
  using Clock = std::chrono::steady_clock;

  struct Lap {
    double seconds = 0;
    double waited = 0;  // for data
  };

  // Before steps that follow something else.
  void start();

  // Runs `get`; its time counts as waiting for data.
  template <typename Get>
  auto wait(const Get& get) {
    const auto begin = Clock::now();
    auto value = get();
    waited_ = waited_ + std::chrono::duration<double>(Clock::now() - begin).count();
    return value;
  }

  // Likewise between steps, for the data of the next one.
  template <typename Get>
  auto wait_ahead(const Get& get) {
    const auto begin = Clock::now();
    auto value = get();
    ahead_ += Clock::now() - begin;
    return value;
  }

  // Ends a step, which took `seconds`, or if that is 0 the time since the one before.
  Lap finish(double seconds);

  // When the step that runs began.
  Clock::time_point began() const { return start_; }
  // Of the steps up to now.
  const std::vector<double>& seconds() const { return seconds_; }
  double waited() const { return waited_in_all_; }
  // The mean of the newest steps.
  double recent() const;

 private:
  Clock::time_point start_;
  Clock::duration ahead_ = {};      // waited for the step that is next
  std::atomic<double> waited_ = 0;  // since the last step
  double waited_in_all_ = 0;
  std::vector<double> seconds_;
};

}  // namespace millrace::train
