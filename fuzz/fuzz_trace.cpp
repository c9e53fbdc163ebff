#include "fuzz_target.h"
#include "runtime/trace_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  refuse_or_accept([&] { sink = trace_to_json(parse_trace_file(text, "fuzz").log).size(); });
  return 0;
}
