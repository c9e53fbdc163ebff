// Chooses how every operator of a network runs on several devices.
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/sharding.h"
#include "parallel/policy.h"

namespace millrace::parallel {

// A forward graph, whole, and how each operator and tensor of it lies on the devices. Plain data.
struct ShardedGraph {
  graph::Graph graph;
  int members = 1;
  bool synchronise_batch_norm = false;
  std::vector<graph::ShardingSignature> signatures;  // by operator; empty for removed ones
  std::vector<graph::Sharding> tensors;              // by tensor: as it is made, fed or held
  std::vector<bool> trained;                         // by tensor: a parameter lies behind it
};

// Goes through the operators in order and takes for each, among the ways that the policy allows,
// the one that moves the fewest bytes: of its inputs, of the gradients of parameters that every
// device has, and of what the next operators will want. Where nothing else works an operator runs
// on whole tensors, the same on every device.
//
// The first input of the graph lies as its reader wants it; the others (labels) are split by
// samples or whole as it is.
//
// Throws InputError where a batch has fewer samples than devices, a layer named in the policy does
// not exist or cannot be divided so, or a normalisation is left with one value per channel.
ShardedGraph shard(const graph::Graph& forward, const ShardingPolicy& policy, int members);

// Throws InputError for a layer named in the policy that is no linear or convolution layer of it.
void require_layers(const graph::Graph& graph, const ShardingPolicy& policy);

// How the parts of one tensor look on a member; throws std::logic_error for parts without rows.
graph::Shape local_shape(const graph::Shape& whole, const graph::Sharding& sharding, int member,
                         int members);

// The choice made for each linear and convolution layer: a policy with these divides the network
// in the same way for another batch size.
std::map<std::string, LayerSharding> layer_choices(const ShardedGraph& sharded);

}  // namespace millrace::parallel
