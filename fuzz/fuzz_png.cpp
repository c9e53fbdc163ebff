#include <zlib.h>

#include <cstring>
#include <vector>

#include "data/image/transform.h"
#include "fuzz_target.h"

namespace {

// Gives every chunk its right checksum, so that mutations get past it to the decoder.
void repair_checksums(std::vector<uint8_t>& bytes) {
  size_t at = 8;
  while (bytes.size() >= 12 && at <= bytes.size() - 12) {
    uint32_t length = 0;
    std::memcpy(&length, &bytes[at], 4);
    length = __builtin_bswap32(length);
    if (length > bytes.size() - at - 12) return;
    const auto sum = static_cast<uint32_t>(crc32(0, &bytes[at + 4], length + 4));
    const uint32_t swapped = __builtin_bswap32(sum);
    std::memcpy(&bytes[at + 8 + length], &swapped, 4);
    at += 12 + length;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const Random random(size, hash_bytes(data, size));
  std::vector<uint8_t> bytes(data, data + size);
  if (random.uniform(102) < 0.8f) repair_checksums(bytes);
  data::Sample sample;
  sample.bytes = std::as_bytes(std::span(bytes));
  float target[8 * 8 * 3];
  data::TransformOptions options = data::photograph_training(8);
  options.channels = random.uniform(100) < 0.5f ? 1 : 3;
  refuse_or_accept([&] { data::Transformer(options).apply(sample, random, target); });
  return 0;
}
