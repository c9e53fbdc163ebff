#include "runtime/input_gate.h"

namespace millrace::runtime {

void InputGate::open(int slots) {
  const std::lock_guard lock(mutex_);
  slots_ = slots;
  read_.assign(static_cast<size_t>(slots), {});
  written_ = 0;
  taken_ = 0;
  released_ = 0;
  closed_ = false;
}

void InputGate::close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
  bell_.ring();
}

void InputGate::throw_if_closed() const {
  if (closed_) throw StageClosed("A stage of the pipeline has stopped.");
}

backend::Event InputGate::wait_for_slot(int64_t number) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return closed_ || number < released_ + slots_; });
  throw_if_closed();
  return read_[static_cast<size_t>(number % slots_)];
}

void InputGate::written(int64_t number) {
  {
    const std::lock_guard lock(mutex_);
    written_ = number + 1;
  }
  changed_.notify_all();
  bell_.ring();
}

void InputGate::wait_until_taken(int64_t number) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return closed_ || number < taken_; });
  throw_if_closed();
}

void InputGate::taken(int64_t number) {
  {
    const std::lock_guard lock(mutex_);
    taken_ = number + 1;
  }
  changed_.notify_all();
}

bool InputGate::is_written(int64_t number) const {
  const std::lock_guard lock(mutex_);
  throw_if_closed();
  return number < written_;
}

void InputGate::wait_for_input(int64_t number) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return closed_ || number < written_; });
  throw_if_closed();
}

void InputGate::release(int64_t number, const backend::Event& read) {
  {
    const std::lock_guard lock(mutex_);
    read_[static_cast<size_t>(number % slots_)] = read;
    released_ = number + 1;
  }
  changed_.notify_all();
}

}  // namespace millrace::runtime
