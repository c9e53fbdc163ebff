#include "fuzz_target.h"
#include "planner/cost/constants.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  refuse_or_accept([&] { sink = describe(parse_constants(text, "fuzz")).size(); });
  return 0;
}
