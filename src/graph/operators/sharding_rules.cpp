#include "graph/operators/sharding_rules.h"

namespace millrace::graph {
namespace {

ShardingSignature all_like(const Inference& inference, size_t outputs, Sharding sharding) {
  return {std::vector<Sharding>(inference.inputs.size(), sharding),
          std::vector<Sharding>(outputs, sharding)};
}

std::vector<ShardingSignature> by_sample_or_channel(const Inference& inference, size_t outputs) {
  std::vector<ShardingSignature> ways = {all_split(inference, outputs, 0)};
  if (inference.shape(0).size() > 1) ways.push_back(all_split(inference, outputs, 1));
  return ways;
}

}  // namespace

ShardingSignature all_split(const Inference& inference, size_t outputs, int axis) {
  return all_like(inference, outputs, split(axis));
}

std::vector<ShardingSignature> shard_by_sample_or_channel(const Inference& inference) {
  return by_sample_or_channel(inference, 1);
}

std::vector<ShardingSignature> shard_both_by_sample_or_channel(const Inference& inference) {
  return by_sample_or_channel(inference, 2);
}

std::vector<ShardingSignature> shard_linear_map(const Inference& inference) {
  auto ways = by_sample_or_channel(inference, 1);
  if (!inference.op.attributes.flag("relu")) ways.push_back(all_like(inference, 1, partial()));
  return ways;
}

std::vector<ShardingSignature> shard_weighted_sum(const Inference& inference) {
  const bool bias = inference.inputs.size() == 3;
  const auto way = [bias](Sharding x, Sharding weights, Sharding bias_way, Sharding y) {
    ShardingSignature signature = {{x, weights}, {y}};
    if (bias) signature.inputs.push_back(bias_way);
    return signature;
  };
  std::vector<ShardingSignature> ways = {
      way(split(0), broadcast(), broadcast(), split(0)),
      way(broadcast(), split(0), split(0), split(1)),
  };
  if (!inference.op.attributes.flag("relu")) {
    ways.push_back(way(split(1), split(1), partial(), partial()));
  }
  return ways;
}

}  // namespace millrace::graph
