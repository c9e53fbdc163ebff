#include "data/formats/recordio.h"
#include "fuzz_target.h"
#include "mutator.h"

namespace millrace {
namespace {

Parts payloads(std::string_view bytes) {
  const std::span<const std::byte> file = std::as_bytes(std::span(bytes));
  Parts parts;
  for (const data::RecordioEntry& entry : data::scan_recordio(file)) {
    refuse_or_accept([&] {
      const data::RecordioPayload payload = data::read_recordio(file, entry.offset);
      parts.emplace_back(reinterpret_cast<const char*>(payload.bytes.data()), payload.bytes.size());
    });
  }
  return parts;
}

std::string join_payloads(const Parts& parts) {
  std::string bytes;
  for (const std::string& part : parts)
    bytes += data::encode_recordio(std::as_bytes(std::span(part)));
  return bytes;
}

}  // namespace
}  // namespace millrace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const std::span<const std::byte> file = std::as_bytes(std::span(data, size));
  for (const data::RecordioEntry& entry : data::scan_recordio(file)) {
    refuse_or_accept([&] {
      sink = touch(data::parse_image_record(data::read_recordio(file, entry.offset)).bytes);
    });
  }
  refuse_or_accept([&] {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    for (const data::RecordioEntry& entry : data::parse_recordio_index(text, "fuzz.idx")) {
      refuse_or_accept([&] { sink = touch(data::read_recordio(file, entry.offset).bytes); });
    }
  });
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed) {
  using namespace millrace;
  return mutate_parts({payloads, join_payloads}, data, size, most, seed);
}
