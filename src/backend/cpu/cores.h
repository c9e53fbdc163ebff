// Which cores this process may use, and how they are divided over its devices.
#pragma once

#include <string>
#include <vector>

#include "comm/launcher.h"

namespace millrace::backend {

// The cores this process may use, as one processing unit (its number in the operating system) for
// each physical core, neighbours in the machine next to each other. Never empty.
std::vector<int> usable_cores();

// The same for the process that started this one: what all ranks of this host have together, when
// the launcher bound each to a part of them.
std::vector<int> host_cores();

int available_cores();

// A team of threads for each device: the core of each thread.
//
// `threads` of 0 gives every device the same number, as many as there are cores for. A core is
// used by one thread; more threads than cores are refused with InputError unless
// `oversubscribe`, which lets teams share cores.
std::vector<std::vector<int>> divide_cores(const std::vector<int>& cores, int devices, int threads,
                                           bool oversubscribe = false);

struct DeviceCores {
  std::vector<std::vector<int>> teams;  // of the devices of this rank
  std::string note;                     // for the user, if threads share cores
};

// The teams of this rank's devices. Ranks of one host share its cores evenly, each with the same
// number of devices; a binding that the user asked the launcher for is kept to instead.
DeviceCores cores_of_devices(const comm::LaunchPlace& place, int devices, int threads,
                             bool oversubscribe = false);

// Keeps the calling thread, and those that it starts from now on, to these cores.
void keep_to(const std::vector<int>& cores);

}  // namespace millrace::backend
