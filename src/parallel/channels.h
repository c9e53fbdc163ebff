// Which rows of which tensors go from which device to which, between the stages of a pipeline.
// Plain data; no threads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/rows.h"
#include "parallel/simulation.h"
#include "parallel/stage_graph.h"

namespace millrace {

// Rows of one tensor that go from a member of one stage to a member of another with every
// micro-batch that both run. A member is a place among its stage's devices; a device is its number
// in the job. Tags tell apart the routes from one device to another.
struct Route {
  StageEdge edge;
  bool gradient = false;  // of the edge's tensor, from edge.to back to edge.from
  int from_member = 0;
  int to_member = 0;
  int from_device = 0;
  int to_device = 0;
  int tag = 0;
  RowRange rows;                  // of the micro-batch
  DataType wire = DataType::f32;  // what it travels as
  int64_t bytes = 0;              // of a message, plain row-major
  int64_t slots = 1;              // that the receiver keeps

  int from_stage() const { return gradient ? edge.to : edge.from; }
  int to_stage() const { return gradient ? edge.from : edge.to; }
  // Whether values are rounded on departure and widened on arrival.
  bool converts() const { return wire != edge.type.dtype; }
  // "conv1", or "conv1.grad".
  std::string name() const;
  bool operator==(const Route&) const = default;
};

struct RouteRequest {
  std::vector<std::vector<int>> devices;  // of each stage
  std::vector<StageEdge> edges;           // of a micro-batch
  bool round_robin = false;               // else every micro-batch is split over the members
  std::vector<Channel> channels;          // between stages; their slots are the receivers'
  DataType wire = DataType::f32;          // f32 or a 16-bit type: what float32 tensors travel as
};

// Every row of every edge arrives once, at the member that holds it, and its gradient comes back.
// Split rows are divided as part_begin says. Throws std::logic_error for an edge without a channel,
// or of tensors with another number of rows than the others.
std::vector<Route> routes_between(const RouteRequest& request);

// Whether messages of this micro-batch take the route; `devices` as in the request.
bool carries(const Route& route, const RouteRequest& request, int64_t micro_batch);

// A member's end of a route, and where its ring of buffers lies in the member's channel area.
// Behind all rings there is room for one float32 row of any tensor that is converted on its way.
struct RouteEnd {
  Route route;
  bool sends = false;
  int64_t offset = 0;
  int64_t slots = 1;   // of this end
  int64_t stride = 0;  // bytes from one to the next

  bool operator==(const RouteEnd&) const = default;
};

// The ends that a member of a stage has; a sender keeps `send_slots` buffers for each.
std::vector<RouteEnd> ends_of(const std::vector<Route>& routes, int stage, int member,
                              int64_t send_slots = 1);

// The bytes of a member's rings, and of its whole channel area.
int64_t ring_bytes(const std::vector<RouteEnd>& ends);
int64_t channel_bytes(const std::vector<RouteEnd>& ends);

}  // namespace millrace
