#include "base/bell.h"

namespace millrace {

void Bell::ring() {
  {
    const std::lock_guard lock(mutex_);
    ++rings_;
  }
  changed_.notify_all();
}

int64_t Bell::rings() const {
  const std::lock_guard lock(mutex_);
  return rings_;
}

void Bell::wait(int64_t known) const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return rings_ > known; });
}

}  // namespace millrace
