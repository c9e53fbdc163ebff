// One device's own graph.
#pragma once

#include "parallel/shard.h"

namespace millrace::parallel {

// The forward graph of a member: local shapes, boxing operators where tensors are wanted in
// another way than they are made, and the names of the whole graph. Tensor::slice tells the place
// of split inputs, parameters, buffers and results. All members' graphs have the same operators
// in the same order, so their collectives meet.
//
// A result of one value, such as "loss", becomes the result "loss.total", the same on all members.
// The tensor "loss" itself is the member's share of it: differentiating from there gives gradients
// that are the member's share for broadcast parameters (sum them over the members) and complete
// for split ones. Other results stay the
// member's part, or are summed where each member has a share of every value.
//
// The graph is like any other for the passes that follow (fusion, inference, autodiff, ...).
graph::Graph localize(const ShardedGraph& sharded, int member);

}  // namespace millrace::parallel
