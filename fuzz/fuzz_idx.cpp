#include "data/formats/idx.h"
#include "fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const std::span<const std::byte> file = std::as_bytes(std::span(data, size));
  refuse_or_accept([&] { sink = touch(parse_idx(file, "fuzz").data); });
  if (size > 2 && data[0] == 0x1f && data[1] == 0x8b) {
    refuse_or_accept([&] {
      const std::vector<std::byte> unpacked = gunzip(file, "fuzz.gz");
      sink = touch(parse_idx(unpacked, "fuzz").data);
    });
  }
  refuse_or_accept([&] {
    const size_t half = size / 2;
    const auto source = open_idx_bytes(file.first(half), file.subspan(half), "fuzz");
    for (uint64_t i = 0; i < source->count() && i < 16; ++i) {
      refuse_or_accept([&] { sink = touch(source->read(i).bytes); });
    }
  });
  return 0;
}
