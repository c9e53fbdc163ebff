#include "data/image/transform.h"
#include "fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  Sample sample;
  sample.bytes = std::as_bytes(std::span(data, size));
  const Random random(size, hash_bytes(data, size));
  float target[8 * 8 * 3];
  TransformOptions options = photograph_training(8);
  options.channels = random.uniform(100) < 0.5f ? 1 : 3;
  if (random.uniform(101) < 0.3f) options.crop = CropKind::centre;
  refuse_or_accept([&] { Transformer(options).apply(sample, random, target); });
  return 0;
}
