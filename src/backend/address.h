// A place in a device's memory.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>

namespace millrace::backend {

// Opaque: everyone may add to it and compare, only a backend can follow it (backend/raw.h). A
// value; it says nothing about how long the memory lives.
class DeviceAddress {
 public:
  DeviceAddress() = default;
  explicit DeviceAddress(uintptr_t value) : value_(value) {}

  DeviceAddress operator+(int64_t bytes) const {
    return DeviceAddress(value_ + static_cast<uintptr_t>(bytes));
  }
  auto operator<=>(const DeviceAddress&) const = default;

 private:
  friend std::byte* raw(DeviceAddress address, int64_t distance);
  uintptr_t value_ = 0;
};

}  // namespace millrace::backend
