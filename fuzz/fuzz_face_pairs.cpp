#include "data/formats/face_pairs.h"
#include "fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  refuse_or_accept([&] {
    const FacePairs pairs = parse_face_pairs(std::as_bytes(std::span(data, size)), "fuzz");
    for (const auto& image : pairs.images) sink = touch(image);
  });
  return 0;
}
