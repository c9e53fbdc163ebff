// A fuzz target takes any bytes; InputError is how a reader refuses them, all else is a finding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/error.h"

namespace millrace {

template <typename Action>
void refuse_or_accept(Action&& action) {
  try {
    action();
  } catch (const InputError&) {
  }
}

// Reads every byte, so that a sanitizer sees a span that leaves its buffer.
inline uint64_t touch(std::span<const std::byte> bytes) {
  uint64_t sum = 0;
  for (const std::byte byte : bytes) sum += static_cast<uint64_t>(byte);
  return sum;
}

inline volatile uint64_t sink = 0;

}  // namespace millrace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
