#include "fuzz_target.h"
#include "mutator.h"
#include "planner/cluster/cluster.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (text.find("topology_file") != std::string_view::npos) return 0;
  refuse_or_accept([&] {
    const simulate::Cluster cluster = planner::parse_cluster(text, "fuzz");
    sink = static_cast<uint64_t>(cluster.devices());
    if (cluster.devices() > 1) cluster.link_between(0, cluster.devices() - 1);
  });
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed) {
  if (size > 0 && data[0] == '{') return millrace::mutate_json(data, size, most, seed);
  return millrace::mutate_parts(millrace::lines_of_text(), data, size, most, seed);
}
