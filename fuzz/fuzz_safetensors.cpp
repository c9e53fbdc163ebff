#include <algorithm>
#include <cstring>
#include <vector>

#include "data/safetensors.h"
#include "fuzz_target.h"
#include "mutator.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  refuse_or_accept([&] {
    const auto contents = data::parse_safetensors(std::as_bytes(std::span(data, size)), "fuzz");
    for (const data::SafetensorsEntry& entry : contents.entries) sink = touch(entry.data);
  });
  return 0;
}

// The header is changed as JSON, with its length right, and the tensors stay behind it.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed) {
  uint64_t length = 0;
  if (size < 8 || most < size + 8 || seed % 8 == 0) return LLVMFuzzerMutate(data, size, most);
  std::memcpy(&length, data, 8);
  if (length > size - 8) return LLVMFuzzerMutate(data, size, most);
  const std::vector<uint8_t> tensors(data + 8 + length, data + size);
  if (tensors.size() + 8 > most) return LLVMFuzzerMutate(data, size, most);
  length = millrace::mutate_json(data + 8, length, most - 8 - tensors.size(), seed);
  std::memcpy(data, &length, 8);
  std::copy(tensors.begin(), tensors.end(), data + 8 + length);
  return 8 + length + tensors.size();
}
