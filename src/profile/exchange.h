// How fast devices here exchange tensors.
#pragma once

#include "comm/group.h"
#include "planner/cluster/cluster.h"

namespace millrace::profile {

// Between devices of this process: a message from one to another, and the rate at which a ring of
// that speed would sum (an all-reduce of n members moves 2(n-1)/n of the tensor).
struct ExchangeSpeed {
  simulate::LinkClass message;
  double collective_rate = 0;
  double collective_latency = 0;
};

// Takes a fraction of a second.
ExchangeSpeed measure_local_exchange(int members);

// Between the processes of a group; called by all of them. Messages go from the first to the
// second.
ExchangeSpeed measure_exchange(comm::Group& group);

}  // namespace millrace::profile
