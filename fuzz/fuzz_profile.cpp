#include "fuzz_target.h"
#include "planner/profile.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  refuse_or_accept([&] { sink = format_profile(parse_profile(text, "fuzz")).size(); });
  return 0;
}
