// Which rows of which tensors go from which device to which, between the stages of a pipeline.
// Plain data; no threads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/rows.h"
#include "parallel/simulation.h"
#include "parallel/stage_graph.h"

namespace millrace::parallel {

// Which micro-batches a member runs: every one, or those whose turn it is.
struct Turn {
  int64_t every = 1;
  int64_t index = 0;

  bool has(int64_t micro_batch) const { return micro_batch % every == index; }
  bool operator==(const Turn&) const = default;
};

// Rows of one tensor that go from a member of one stage to a member of another with every
// micro-batch that both run. A member is a place among its stage's devices; a device is its number
// in the job. Tags tell apart the routes from one device to another.
struct Route {
  StageEdge edge;
  bool gradient = false;  // of the edge's tensor, from edge.to back to edge.from
  int from_member = 0;
  int to_member = 0;
  Turn from_turn, to_turn;  // of the two members
  int from_device = 0;
  int to_device = 0;
  int tag = 0;
  RowRange rows;                                // of the micro-batch
  RowRange from_rows, to_rows;                  // of it that the two members hold
  graph::DataType wire = graph::DataType::f32;  // what it travels as
  int64_t bytes = 0;                            // of a message, plain row-major
  int64_t slots = 1;                            // that the receiver keeps

  int from_stage() const { return gradient ? edge.to : edge.from; }
  int to_stage() const { return gradient ? edge.from : edge.to; }
  // Whether values are rounded on departure and widened on arrival.
  bool converts() const { return wire != edge.type.dtype; }
  // Whether messages of this micro-batch take the route.
  bool carries(int64_t micro_batch) const {
    return from_turn.has(micro_batch) && to_turn.has(micro_batch);
  }
  // "conv1", or "conv1.grad"; and the layer that it belongs to.
  std::string name() const;
  std::string layer() const { return edge.name.substr(0, edge.name.find('/')); }
  bool operator==(const Route&) const = default;
};

struct RouteRequest {
  std::vector<std::vector<int>> devices;  // of each stage
  std::vector<StageEdge> edges;           // of a micro-batch
  bool round_robin = false;               // else every micro-batch is split over the members
  std::vector<Channel> channels;          // between stages; their slots are the receivers'
  graph::DataType wire =
      graph::DataType::f32;  // f32 or a 16-bit type: what float32 tensors travel as
};

// Every row of every edge arrives once, at the member that holds it, and its gradient comes back.
// Split rows are divided as part_begin says. Throws std::logic_error for an edge without a channel,
// or of tensors with another number of rows than the others.
std::vector<Route> routes_between(const RouteRequest& request);

// A member's end of a route, and where its ring of buffers lies in the member's channel area.
// Behind all rings there is room for one float32 row of any tensor that is converted on its way.
struct RouteEnd {
  Route route;
  bool sends = false;
  int64_t offset = 0;
  int64_t slots = 1;   // of this end
  int64_t stride = 0;  // bytes from one to the next

  // What the tensor is called on this side.
  std::string tensor() const;
  // The rows as the member counts its own.
  RowRange rows() const;
  // The member on the other side.
  int peer_device() const { return sends ? route.to_device : route.from_device; }
  const Turn& peer_turn() const { return sends ? route.to_turn : route.from_turn; }
  bool operator==(const RouteEnd&) const = default;
};

// The ends that a member of a stage has; a sender keeps `send_slots` buffers for each.
std::vector<RouteEnd> ends_of(const std::vector<Route>& routes, int stage, int member,
                              int64_t send_slots = 1);

// The bytes of a member's rings, and of its whole channel area.
int64_t ring_bytes(const std::vector<RouteEnd>& ends);
int64_t channel_bytes(const std::vector<RouteEnd>& ends);

}  // namespace millrace::parallel
