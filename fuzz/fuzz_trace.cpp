#include "fuzz_target.h"
#include "mutator.h"
#include "runtime/trace_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  refuse_or_accept(
      [&] { sink = runtime::trace_to_json(runtime::parse_trace_file(text, "fuzz").log).size(); });
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed) {
  return millrace::mutate_json(data, size, most, seed);
}
