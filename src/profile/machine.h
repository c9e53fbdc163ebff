// This machine, measured: a cluster description that `plan --cluster` reads.
#pragma once

#include <filesystem>

#include "planner/cluster/cluster.h"
#include "train/observer.h"

namespace millrace::comm {
class MpiSession;
}  // namespace millrace::comm

namespace millrace::profile {

struct MachineRequest {
  int devices = 1;
  int threads = 0;  // of a device; 0: cores divided evenly
  comm::MpiSession* processes =
      nullptr;  // borrowed; with several the network between them is measured
};

// `devices` devices, each with its part of the cores (found with hwloc): arithmetic in float32 and
// bfloat16 and memory bandwidth with all of them at work at once, and what joins two of them. With
// processes, each is a machine and the network is what joins the first two. Takes a few seconds.
simulate::Cluster measure_machine(const MachineRequest& request);

// Where descriptions of machines are kept: next to the choices of convolutions; empty if there is
// no home.
std::filesystem::path machine_path();

// What the rates of this machine hold for: host, processor, cores that may be used, versions.
std::string machine_identity();

// `measure_machine` of one device per NUMA node, from the file where it is kept if this machine is
// there; otherwise it is measured and kept beside the others, which `observer` is told.
simulate::Cluster cluster_here(train::TrainingObserver& observer);

}  // namespace millrace::profile
