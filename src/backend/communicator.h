// The members of a collective, as a stream sees them.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "comm/group.h"
#include "graph/types.h"

namespace millrace::backend {

// Owned by whoever joined the group; must live as long as commands that name it. Every member
// enqueues the same collectives in the same order. The functions are called by streams, with memory
// that they have opened, one at a time but for `send` and `receive`.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int members() const = 0;
  virtual int member() const = 0;
  virtual comm::GroupStatistics statistics() const = 0;

  // Replaces the values by their sum over the members. They travel as `wire`, f32 or a 16-bit type:
  // every term is rounded to it, the terms are added in float32, and the sum is rounded once more.
  virtual void all_reduce(std::span<float> values, graph::DataType wire) = 0;
  // `whole` is a row of blocks that are divided over the members as part_begin says. Sums it and
  // leaves this member's blocks in `part`.
  virtual void reduce_scatter(std::span<const float> whole, std::span<float> part, int64_t block,
                              graph::DataType wire) = 0;
  // The reverse: collects every member's blocks, of any type, into `whole`.
  virtual void all_gather(std::span<const std::byte> part, std::span<std::byte> whole,
                          int64_t block_bytes) = 0;
  virtual void send(int to, std::span<const std::byte> data, int tag) = 0;
  virtual void receive(int from, std::span<std::byte> data, int tag) = 0;
};

// For devices whose memory this processor can reach.
std::unique_ptr<Communicator> join(comm::Group group);

// Stands in for members that are not there: nothing is summed and nobody waits. Small tensors that
// are gathered, which may be labels, are this member's everywhere.
std::unique_ptr<Communicator> join_nobody(int members, int member);

}  // namespace millrace::backend
