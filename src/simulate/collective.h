// What devices ask of each other together, and what each has to send for it.
#pragma once

#include <cstdint>

namespace millrace::simulate {

enum class Collective : uint8_t {
  all_reduce,      // every member ends with the sum
  reduce_scatter,  // every member ends with its part of the sum
  all_gather,      // every member ends with the parts of all
};

// What each member of a collective sends, one hop behind the other.
struct CollectiveWork {
  double bytes = 0;
  int hops = 0;
};

// `bytes`: of the whole tensor. Around a ring everything but a member's own part goes once, for an
// all-reduce twice. Up and down a tree, in pieces that follow each other, all of it goes twice over
// fewer hops: that is how small tensors are summed.
CollectiveWork ring_work(Collective kind, int members, double bytes);
CollectiveWork tree_work(int members, double bytes);  // of an all-reduce

}  // namespace millrace::simulate
