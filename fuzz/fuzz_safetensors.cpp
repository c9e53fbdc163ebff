#include "data/safetensors.h"
#include "fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  refuse_or_accept([&] {
    const auto contents = parse_safetensors(std::as_bytes(std::span(data, size)), "fuzz");
    for (const SafetensorsEntry& entry : contents.entries) sink = touch(entry.data);
  });
  return 0;
}
