#include <algorithm>
#include <cstring>

#include "data/formats/idx.h"
#include "fuzz_target.h"
#include "mutator.h"

namespace millrace {
namespace {

constexpr uint64_t kMostValues = 4096;

// The magic number, each dimension, the values.
Parts split_idx(std::string_view bytes) {
  if (bytes.size() < 4) return {};
  Parts parts = {std::string(bytes.substr(0, 4))};
  const auto dimensions = static_cast<size_t>(bytes[3] & 7);
  bytes.remove_prefix(4);
  for (size_t i = 0; i < dimensions && bytes.size() >= 4; ++i) {
    parts.emplace_back(bytes.substr(0, 4));
    bytes.remove_prefix(4);
  }
  parts.emplace_back(bytes);
  return parts;
}

// With as many values as the dimensions say, if those are few.
std::string join_idx(const Parts& parts) {
  std::string bytes;
  uint64_t values = 1;
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    bytes += parts[i];
    if (i == 0 || parts[i].size() != 4) continue;
    uint32_t length = 0;
    std::memcpy(&length, parts[i].data(), 4);
    values = std::min(values * __builtin_bswap32(length), kMostValues + 1);
  }
  std::string last = parts.back();
  if (parts.size() > 1 && values <= kMostValues) last.resize(values, 'x');
  return bytes + last;
}

}  // namespace
}  // namespace millrace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const std::span<const std::byte> file = std::as_bytes(std::span(data, size));
  refuse_or_accept([&] { sink = touch(data::parse_idx(file, "fuzz").data); });
  if (size > 2 && data[0] == 0x1f && data[1] == 0x8b) {
    refuse_or_accept([&] {
      const std::vector<std::byte> unpacked = data::gunzip(file, "fuzz.gz");
      sink = touch(data::parse_idx(unpacked, "fuzz").data);
    });
  }
  refuse_or_accept([&] {
    const size_t half = size / 2;
    const auto source = data::open_idx_bytes(file.first(half), file.subspan(half), "fuzz");
    for (uint64_t i = 0; i < source->count() && i < 16; ++i) {
      refuse_or_accept([&] { sink = touch(source->read(i).bytes); });
    }
  });
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed) {
  using namespace millrace;
  return mutate_parts({split_idx, join_idx}, data, size, most, seed);
}
