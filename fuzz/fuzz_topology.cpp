#include "fuzz_target.h"
#include "mutator.h"
#include "planner/cluster/topology.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  refuse_or_accept([&] { sink = planner::parse_topology(text, "fuzz").links.size(); });
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed) {
  return millrace::mutate_parts(millrace::lines_of_text(), data, size, most, seed);
}
