#include "train/loop/step_clock.h"

#include <algorithm>
#include <numeric>

namespace millrace::train {

void StepClock::start() {
  start_ = Clock::now() - ahead_;
  waited_ = std::chrono::duration<double>(ahead_).count();
  ahead_ = {};
}

StepClock::Lap StepClock::finish(double seconds) {
  const auto now = Clock::now();
  const double since_last = std::chrono::duration<double>(now - start_).count();
  const Lap lap = {seconds > 0 ? seconds : since_last, waited_.exchange(0)};
  seconds_.push_back(lap.seconds);
  waited_in_all_ += lap.waited;
  start_ = now;
  return lap;
}

double StepClock::recent() const {
  constexpr size_t kWindow = 20;
  const size_t first = seconds_.size() > 1 ? 1 : 0;  // the first step warms up
  const size_t count = std::min(kWindow, seconds_.size() - first);
  const double sum =
      std::accumulate(seconds_.end() - static_cast<ptrdiff_t>(count), seconds_.end(), 0.0);
  return sum / static_cast<double>(count);
}

}  // namespace millrace::train
