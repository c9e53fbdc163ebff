#include "fuzz_target.h"
#include "planner/cluster/topology.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  refuse_or_accept([&] { sink = parse_topology(text, "fuzz").links.size(); });
  return 0;
}
