#include "backend/strict/strict_region.h"

#include <sys/mman.h>
#include <unistd.h>

#include "backend/cpu/cpu_region.h"
#include "backend/strict/strict_stream.h"
#include "base/error.h"
#include "base/text.h"

namespace millrace::backend {

StrictRegion::StrictRegion(std::shared_ptr<StrictHub> hub, int64_t bytes)
    : hub_(std::move(hub)), bytes_(bytes), mapped_(whole_pages(bytes)) {
  const auto size = static_cast<size_t>(mapped_);
  const int file = ::memfd_create("millrace-strict", MFD_CLOEXEC);
  void* memory = MAP_FAILED;
  void* shown = MAP_FAILED;
  if (file >= 0 && ::ftruncate(file, mapped_) == 0) {
    memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  }
  if (memory != MAP_FAILED) {
    std::byte* wanted = static_cast<std::byte*>(memory) - kStrictDistance;
    shown = ::mmap(wanted, size, PROT_NONE, MAP_SHARED | MAP_FIXED_NOREPLACE, file, 0);
    if (shown == MAP_FAILED) ::munmap(memory, size);
  }
  if (file >= 0) ::close(file);
  if (shown == MAP_FAILED) {
    fail_job("The machine cannot give {} for a strict device's arena.",
             format_bytes(static_cast<uint64_t>(bytes)));
  }
  memory_ = static_cast<std::byte*>(memory);
  shown_ = static_cast<std::byte*>(shown);
}

StrictRegion::~StrictRegion() {
  {
    const std::lock_guard lock(hub_->mutex);
    hub_->ledger.forget(begin(), bytes_);
  }
  ::munmap(shown_, static_cast<size_t>(mapped_));
  ::munmap(memory_, static_cast<size_t>(mapped_));
}

DeviceAddress StrictRegion::begin() const {
  return DeviceAddress(reinterpret_cast<uintptr_t>(shown_));
}

int64_t StrictRegion::resident_bytes() const { return touched_bytes(memory_, mapped_); }

}  // namespace millrace::backend
