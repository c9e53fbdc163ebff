// Books parts of a kernel's workspace when it is made and hands them out when it runs.
#pragma once

#include <cstddef>
#include <cstdint>

namespace millrace::kernels {

class WorkspaceBook {
 public:
  // Reserves `bytes` and returns where they start, at a cache line.
  uint64_t book(uint64_t bytes) {
    const uint64_t offset = size_;
    size_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return offset;
  }
  uint64_t floats(int64_t count) { return book(static_cast<uint64_t>(count) * sizeof(float)); }

  uint64_t size() const { return size_; }

 private:
  static constexpr uint64_t kAlignment = 64;
  uint64_t size_ = 0;
};

// A workspace of one piece for all threads and one for each part of the work.
struct PartedWorkspace {
  uint64_t shared = 0;  // bytes
  uint64_t part = 0;
  int parts = 1;

  uint64_t size() const { return shared + part * static_cast<uint64_t>(parts); }
  std::byte* of_part(std::byte* workspace, int number) const {
    return workspace + shared + part * static_cast<uint64_t>(number);
  }
};

template <typename T>
T* booked(std::byte* workspace, uint64_t offset) {
  return reinterpret_cast<T*>(workspace + offset);
}

}  // namespace millrace::kernels
