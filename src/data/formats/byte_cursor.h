// Reading numbers from bytes that may lie.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "data/sample.h"

namespace millrace::data {

// Walks over bytes that it does not own; every read is checked and throws BadData when the
// bytes run out.
class ByteCursor {
 public:
  explicit ByteCursor(std::span<const std::byte> bytes) : bytes_(bytes) {}

  bool empty() const { return bytes_.empty(); }
  std::span<const std::byte> rest() const { return bytes_; }

  std::span<const std::byte> take(uint64_t size) {
    if (size > bytes_.size()) {
      fail_data("{} bytes are needed where {} are left", size, bytes_.size());
    }
    const auto taken = bytes_.first(size);
    bytes_ = bytes_.subspan(size);
    return taken;
  }

  template <typename Number>
  Number little_endian() {
    Number number;
    std::memcpy(&number, take(sizeof(Number)).data(), sizeof(Number));
    return number;
  }

  uint32_t big_endian_32() { return __builtin_bswap32(little_endian<uint32_t>()); }

  // A protobuf variable-length number.
  uint64_t varint() {
    uint64_t number = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<uint64_t>(little_endian<uint8_t>());
      number |= (byte & 0x7F) << shift;
      if (byte < 0x80) return number;
    }
    fail_data("a number in its protobuf message is longer than 10 bytes");
  }

 private:
  std::span<const std::byte> bytes_;
};

inline std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace millrace::data
