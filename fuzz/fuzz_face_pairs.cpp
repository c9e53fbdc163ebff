#include <algorithm>
#include <cstring>

#include "data/formats/face_pairs.h"
#include "fuzz_target.h"
#include "mutator.h"

namespace millrace {
namespace {

// Bytes of the length behind an operation of the pickle.
size_t length_bytes(char operation) {
  if (operation == 'U' || operation == 'C') return 1;
  return operation == 'T' || operation == 'B' ? 4 : 0;
}

// Texts with their operation, without their length, and all else byte by byte.
Parts split_operations(std::string_view bytes) {
  Parts parts;
  while (!bytes.empty()) {
    const size_t taken = length_bytes(bytes[0]);
    uint64_t length = 0;
    if (taken < bytes.size()) std::memcpy(&length, bytes.data() + 1, taken);
    const size_t begin = std::min(bytes.size(), 1 + taken);
    const std::string_view text = bytes.substr(begin, length);
    parts.push_back(bytes[0] + std::string(text));
    bytes.remove_prefix(begin + text.size());
  }
  return parts;
}

std::string join_operations(const Parts& parts) {
  std::string bytes;
  for (const std::string& part : parts) {
    if (part.empty()) continue;
    const uint64_t length = part.size() - 1;
    bytes += part[0];
    bytes.append(reinterpret_cast<const char*>(&length), length_bytes(part[0]));
    bytes += part.substr(1);
  }
  return bytes;
}

}  // namespace
}  // namespace millrace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  refuse_or_accept([&] {
    const data::FacePairs pairs =
        data::parse_face_pairs(std::as_bytes(std::span(data, size)), "fuzz");
    for (const auto& image : pairs.images) sink = touch(image);
  });
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed) {
  using namespace millrace;
  return mutate_parts({split_operations, join_operations}, data, size, most, seed);
}
