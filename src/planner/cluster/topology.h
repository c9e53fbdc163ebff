// The matrix that `nvidia-smi topo -m` prints: which kind of link joins each pair of devices.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "simulate/cluster.h"

namespace millrace::planner {

// Devices only, without the columns of network cards and affinities. Plain data. `links` is square
// and symmetric with "X" on its diagonal.
struct Topology {
  std::vector<std::string> devices;  // "GPU0", ...
  simulate::LinkMatrix links;
};

// Takes any bytes. Throws InputError naming `file` and the line at fault.
Topology parse_topology(std::string_view text, std::string_view file);

}  // namespace millrace::planner
