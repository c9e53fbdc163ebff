// Shardings that operator definitions share. Lists hold the ways to run on parts; running on
// whole tensors, the same on every device, is always possible and never listed.
#pragma once

#include <vector>

#include "graph/operator_definition.h"

namespace millrace::graph {

// Every input and output split along one and the same axis.
ShardingSignature all_split(const Inference& inference, size_t outputs, int axis);

// By samples and by channels (or features): for operators that treat each of them alone and take
// and make tensors of one rank.
std::vector<ShardingSignature> shard_by_sample_or_channel(const Inference& inference);

// As above, for operators with a second output (indices).
std::vector<ShardingSignature> shard_both_by_sample_or_channel(const Inference& inference);

// As shard_by_sample_or_channel, and partial sums in and out: for linear operators.
std::vector<ShardingSignature> shard_linear_map(const Inference& inference);

// A layer with weights (out x in ...) and perhaps a bias, as signatures in this order: by samples,
// by outputs and, where nothing follows the sum, by inputs.
std::vector<ShardingSignature> shard_weighted_sum(const Inference& inference);

}  // namespace millrace::graph
