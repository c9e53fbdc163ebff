// A piece of a device's memory.
#pragma once

#include "backend/address.h"

namespace millrace::backend {

// Owned by whoever asked the device for it, which frees it when nothing under way uses it any more.
// Starts filled with zeros.
class Region {
 public:
  virtual ~Region() = default;
  virtual DeviceAddress begin() const = 0;
  virtual int64_t bytes() const = 0;
  // Bytes that were ever touched, in whole pages.
  virtual int64_t resident_bytes() const = 0;
};

}  // namespace millrace::backend
