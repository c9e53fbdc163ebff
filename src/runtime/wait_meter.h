// How long a device has waited for what.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "runtime/trace.h"

namespace millrace::runtime {

// input: the feeding thread; activations and gradients: other stages; room: a receiver that is
// behind; choice: anything that could run, where the order is left to run time.
enum class WaitCause : uint8_t { input, activations, gradients, room, choice };

inline constexpr int kWaitCauses = 5;

std::string_view name_of(WaitCause cause);

// Used by the device's thread alone. Waits shorter than a few microseconds are counted, but leave
// no event in the trace.
class WaitMeter {
 public:
  explicit WaitMeter(TraceRecorder* trace = nullptr, int trace_device = 0)
      : trace_(trace), trace_device_(trace_device) {}

  template <typename Wait>
  auto measure(WaitCause cause, int64_t micro_batch, Wait&& wait) {
    const Scope scope = {*this, cause, micro_batch, trace_now()};
    return wait();
  }

  double seconds(WaitCause cause) const {
    return static_cast<double>(nanoseconds_[static_cast<size_t>(cause)]) * 1e-9;
  }

 private:
  struct Scope {
    WaitMeter& meter;
    WaitCause cause;
    int64_t micro_batch;
    int64_t begin;
    ~Scope() { meter.add(cause, micro_batch, begin, trace_now()); }
  };

  void add(WaitCause cause, int64_t micro_batch, int64_t begin, int64_t end);

  TraceRecorder* trace_;
  int trace_device_;
  std::array<int64_t, kWaitCauses> nanoseconds_ = {};
};

}  // namespace millrace::runtime
