#include <algorithm>

#include "data/image/transform.h"
#include "fuzz_target.h"
#include "mutator.h"

namespace millrace {
namespace {

constexpr char kStartOfScan = '\xda';

// Segments without their lengths, each with its marker; the last has the scan behind it.
Parts split_segments(std::string_view bytes) {
  Parts parts;
  if (bytes.size() < 4 || bytes[0] != '\xff' || bytes[1] != '\xd8') return parts;
  bytes.remove_prefix(2);
  while (bytes.size() >= 4 && bytes[0] == '\xff') {
    const char marker = bytes[1];
    const size_t length = static_cast<uint8_t>(bytes[2]) * 256u + static_cast<uint8_t>(bytes[3]);
    const size_t end = marker == kStartOfScan ? bytes.size() : std::min(bytes.size(), 2 + length);
    if (end < 4) break;
    parts.push_back(marker + std::string(bytes.substr(4, end - 4)));
    bytes.remove_prefix(end);
  }
  return parts;
}

std::string join_segments(const Parts& parts) {
  std::string bytes = "\xff\xd8";
  for (const std::string& part : parts) {
    if (part.empty()) continue;
    // Of a scan only the header has a length; it is that of three colours, or of one.
    const size_t own = part[0] == kStartOfScan ? (part.size() > 1 && part[1] == 1 ? 6 : 10)
                                               : std::min<size_t>(part.size() - 1, 65533);
    bytes += '\xff';
    bytes += part[0];
    bytes += static_cast<char>((own + 2) >> 8);
    bytes += static_cast<char>((own + 2) & 255);
    bytes += part.substr(1);
  }
  return bytes;
}

}  // namespace
}  // namespace millrace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  data::Sample sample;
  sample.bytes = std::as_bytes(std::span(data, size));
  const Random random(size, hash_bytes(data, size));
  float target[8 * 8 * 3];
  data::TransformOptions options = data::photograph_training(8);
  options.channels = random.uniform(100) < 0.5f ? 1 : 3;
  if (random.uniform(101) < 0.3f) options.crop = data::CropKind::centre;
  refuse_or_accept([&] { data::Transformer(options).apply(sample, random, target); });
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed) {
  using namespace millrace;
  return mutate_parts({split_segments, join_segments}, data, size, most, seed);
}
