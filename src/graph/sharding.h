// How a tensor lies on the devices of a placement.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace millrace::graph {

// broadcast: every device has the whole tensor. split: each has some rows along an axis, divided
// as part_begin says. partial: the tensor is the sum of what the devices have.
struct Sharding {
  enum class Kind : uint8_t { broadcast, split, partial };
  Kind kind = Kind::broadcast;
  int axis = 0;  // of a split

  bool operator==(const Sharding&) const = default;
};

constexpr Sharding broadcast() { return {}; }
constexpr Sharding split(int axis) { return {Sharding::Kind::split, axis}; }
constexpr Sharding partial() { return {Sharding::Kind::partial, 0}; }

// "broadcast", "split(0)", "partial".
std::string to_string(const Sharding& sharding);

// One way to run an operator: given inputs like these, it makes outputs like those.
struct ShardingSignature {
  std::vector<Sharding> inputs;
  std::vector<Sharding> outputs;
};

}  // namespace millrace::graph
