#include "fuzz_target.h"
#include "parallel/plan.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const Json json = Json::parse(data, data + size, nullptr, false);
  if (json.is_discarded()) return 0;
  refuse_or_accept([&] {
    const Plan plan = parse_plan(json, "fuzz");
    sink = to_json(plan).size();
  });
  return 0;
}
