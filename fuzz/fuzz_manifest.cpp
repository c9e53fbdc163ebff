#include "fuzz_target.h"
#include "train/checkpoint.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const Json json = Json::parse(data, data + size, nullptr, false);
  if (json.is_discarded()) return 0;
  refuse_or_accept([&] { sink = to_json(parse_manifest(json, "fuzz")).size(); });
  return 0;
}
