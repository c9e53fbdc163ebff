// Memory that only the backend can reach.
#pragma once

#include <memory>

#include "backend/region.h"

namespace millrace::backend {

struct StrictHub;

// How far behind the addresses that are given out the memory can be reached.
inline constexpr int64_t kStrictDistance = int64_t{1} << 44;

// One piece of memory mapped twice: where its addresses say, nothing may be read or written, so
// that whoever follows one ends the process; kStrictDistance further on it is ordinary memory.
// Throws JobError where the machine cannot give it.
class StrictRegion final : public Region {
 public:
  StrictRegion(std::shared_ptr<StrictHub> hub, int64_t bytes);
  ~StrictRegion() override;
  StrictRegion(const StrictRegion&) = delete;
  StrictRegion& operator=(const StrictRegion&) = delete;

  DeviceAddress begin() const override;
  int64_t bytes() const override { return bytes_; }
  int64_t resident_bytes() const override;

 private:
  const std::shared_ptr<StrictHub> hub_;
  int64_t bytes_;
  int64_t mapped_;
  std::byte* memory_ = nullptr;
  std::byte* shown_ = nullptr;
};

}  // namespace millrace::backend
