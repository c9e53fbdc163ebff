#include "fuzz_target.h"
#include "mutator.h"
#include "train/checkpoint.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const Json json = Json::parse(data, data + size, nullptr, false);
  if (json.is_discarded()) return 0;
  refuse_or_accept([&] { sink = train::to_json(train::parse_manifest(json, "fuzz")).size(); });
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed) {
  return millrace::mutate_json(data, size, most, seed);
}
