#include "runtime/wait_meter.h"

namespace millrace::runtime {
namespace {

constexpr int64_t kShortest = 5000;  // nanoseconds, for the trace

}  // namespace

std::string_view name_of(WaitCause cause) {
  constexpr std::string_view kNames[] = {"input", "activations", "gradients", "room", "choice"};
  return kNames[static_cast<size_t>(cause)];
}

void WaitMeter::add(WaitCause cause, int64_t micro_batch, int64_t begin, int64_t end) {
  nanoseconds_[static_cast<size_t>(cause)] += end - begin;
  if (trace_ == nullptr || end - begin < kShortest) return;
  trace_->add(trace_device_, TraceCategory::wait, name_of(cause), micro_batch, begin, end);
}

}  // namespace millrace::runtime
