#include "data/formats/recordio.h"
#include "fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const std::span<const std::byte> file = std::as_bytes(std::span(data, size));
  for (const RecordioEntry& entry : scan_recordio(file)) {
    refuse_or_accept(
        [&] { sink = touch(parse_image_record(read_recordio(file, entry.offset)).bytes); });
  }
  refuse_or_accept([&] {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    for (const RecordioEntry& entry : parse_recordio_index(text, "fuzz.idx")) {
      refuse_or_accept([&] { sink = touch(read_recordio(file, entry.offset).bytes); });
    }
  });
  return 0;
}
