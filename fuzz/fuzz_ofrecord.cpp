#include "data/formats/ofrecord.h"
#include "fuzz_target.h"
#include "mutator.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const std::span<const std::byte> file = std::as_bytes(std::span(data, size));
  refuse_or_accept([&] { sink = touch(data::parse_ofrecord(file).bytes); });
  for (const data::OfrecordEntry& entry : data::scan_ofrecord(file)) {
    if (!entry.damage.empty()) continue;
    refuse_or_accept([&] {
      sink = touch(data::parse_ofrecord(file.subspan(entry.offset + 8, entry.length)).bytes);
    });
  }
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed) {
  return millrace::mutate_parts(millrace::length_prefixed(8), data, size, most, seed);
}
