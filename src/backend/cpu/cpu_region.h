// Memory of this processor.
#pragma once

#include "backend/region.h"

namespace millrace::backend {

// One anonymous mapping of exactly the size asked for. Throws JobError where the machine cannot
// give it.
class CpuRegion final : public Region {
 public:
  explicit CpuRegion(int64_t bytes);
  ~CpuRegion() override;
  CpuRegion(const CpuRegion&) = delete;
  CpuRegion& operator=(const CpuRegion&) = delete;

  DeviceAddress begin() const override;
  int64_t bytes() const override { return bytes_; }
  int64_t resident_bytes() const override;

 private:
  int64_t bytes_;
  int64_t mapped_;
  std::byte* data_ = nullptr;
};

// What mappings share: sizes in whole pages, and how many bytes of them were ever touched.
int64_t whole_pages(int64_t bytes);
int64_t touched_bytes(std::byte* data, int64_t mapped);

}  // namespace millrace::backend
