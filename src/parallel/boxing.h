// What it takes to turn a tensor that lies one way on the devices into one that lies another way.
#pragma once

#include "graph/sharding.h"

namespace millrace::parallel {

// How the gradient of a tensor lies: split tensors have split gradients, broadcast ones partial,
// partial ones broadcast.
graph::Sharding gradient_of(const graph::Sharding& sharding);

// Bytes that each device hands to others for a tensor of `bytes` in all.
double boxing_bytes(const graph::Sharding& from, const graph::Sharding& to, double bytes,
                    int members);

// The same, with the way back that the gradient takes if there is one.
double boxing_bytes_both_ways(const graph::Sharding& from, const graph::Sharding& to, double bytes,
                              int members, bool has_gradient);

}  // namespace millrace::parallel
