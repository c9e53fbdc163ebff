#include "fuzz_target.h"
#include "planner/cluster/cluster.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (text.find("topology_file") != std::string_view::npos) return 0;
  refuse_or_accept([&] {
    const Cluster cluster = parse_cluster(text, "fuzz");
    sink = static_cast<uint64_t>(cluster.devices());
    if (cluster.devices() > 1) cluster.link_between(0, cluster.devices() - 1);
  });
  return 0;
}
