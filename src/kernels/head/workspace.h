// Books parts of a kernel's workspace when it is made and hands them out when it runs.
#pragma once

#include <cstddef>
#include <cstdint>

namespace millrace {

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

template <typename T>
T* booked(std::byte* workspace, uint64_t offset) {
  return reinterpret_cast<T*>(workspace + offset);
}

}  // namespace millrace
