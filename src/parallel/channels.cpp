#include "parallel/channels.h"

#include <algorithm>
#include <map>
#include <stdexcept>

#include "base/parts.h"

namespace millrace::parallel {
namespace {

constexpr int64_t kAlignment = 64;

int64_t aligned_bytes(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Works out the routes, edge by edge.
class Routing {
 public:
  explicit Routing(const RouteRequest& request) : request_(request) {}

  std::vector<Route> run() {
    for (const StageEdge& edge : request_.edges) {
      if (edge.type.shape.empty() || edge.type.shape[0] != request_.edges[0].type.shape[0]) {
        throw std::logic_error("'" + edge.name + "' has other rows than the micro-batch");
      }
      add(edge, false);
      if (edge.has_gradient) add(edge, true);
    }
    return std::move(routes_);
  }

 private:
  int members(int stage) const {
    return static_cast<int>(request_.devices.at(static_cast<size_t>(stage)).size());
  }

  RowRange rows_of(int64_t rows, int stage, int member) const {
    if (request_.round_robin) return {0, rows};
    return {part_begin(rows, member, members(stage)), part_begin(rows, member + 1, members(stage))};
  }

  Turn turn_of(int stage, int member) const {
    return request_.round_robin ? Turn{members(stage), member} : Turn{};
  }

  int64_t slots_between(int from, int to) const {
    for (const Channel& channel : request_.channels) {
      if (channel.from == from && channel.to == to) return channel.slots;
    }
    throw std::logic_error("a tensor goes between stages that have no channel");
  }

  void add(const StageEdge& edge, bool gradient) {
    Route route;
    route.edge = edge;
    route.gradient = gradient;
    const int from = route.from_stage();
    const int to = route.to_stage();
    route.slots = slots_between(from, to);
    const int64_t rows = edge.type.shape[0];
    route.wire = edge.type.dtype == graph::DataType::f32 ? request_.wire : edge.type.dtype;
    const int64_t row_bytes = edge.type.elements() / rows * graph::size_of(route.wire);
    for (int a = 0; a < members(from); ++a) {
      for (int b = 0; b < members(to); ++b) {
        if (request_.round_robin && !meet(a, members(from), b, members(to))) continue;
        const RowRange sent = rows_of(rows, from, a);
        const RowRange wanted = rows_of(rows, to, b);
        route.rows = {std::max(sent.begin, wanted.begin), std::min(sent.end, wanted.end)};
        if (route.rows.begin >= route.rows.end) continue;
        route.bytes = (route.rows.end - route.rows.begin) * row_bytes;
        route.from_rows = sent;
        route.to_rows = wanted;
        route.from_member = a;
        route.to_member = b;
        route.from_turn = turn_of(from, a);
        route.to_turn = turn_of(to, b);
        route.from_device = request_.devices[static_cast<size_t>(from)][static_cast<size_t>(a)];
        route.to_device = request_.devices[static_cast<size_t>(to)][static_cast<size_t>(b)];
        route.tag = tags_[{route.from_device, route.to_device}]++;
        routes_.push_back(route);
      }
    }
  }

  // Whether some micro-batch is in turn on member a of one stage and on b of the other.
  static bool meet(int a, int a_count, int b, int b_count) {
    for (int m = a; m < a_count * b_count; m += a_count) {
      if (m % b_count == b) return true;
    }
    return false;
  }

  const RouteRequest& request_;
  std::map<std::pair<int, int>, int> tags_;  // next one, from device to device
  std::vector<Route> routes_;
};

}  // namespace

std::string Route::name() const { return gradient ? edge.name + ".grad" : edge.name; }

std::vector<Route> routes_between(const RouteRequest& request) { return Routing(request).run(); }

std::string RouteEnd::tensor() const {
  return sends || !route.gradient ? route.name() : arriving_gradient(route.edge);
}

RowRange RouteEnd::rows() const {
  const int64_t first = sends ? route.from_rows.begin : route.to_rows.begin;
  return {route.rows.begin - first, route.rows.end - first};
}

std::vector<RouteEnd> ends_of(const std::vector<Route>& routes, int stage, int member,
                              int64_t send_slots) {
  std::vector<RouteEnd> ends;
  int64_t offset = 0;
  for (const Route& route : routes) {
    const bool sends = route.from_stage() == stage && route.from_member == member;
    const bool receives = route.to_stage() == stage && route.to_member == member;
    if (!sends && !receives) continue;
    RouteEnd end = {route, sends, offset, sends ? send_slots : route.slots,
                    aligned_bytes(route.bytes)};
    offset += end.slots * end.stride;
    ends.push_back(std::move(end));
  }
  return ends;
}

int64_t ring_bytes(const std::vector<RouteEnd>& ends) {
  return ends.empty() ? 0 : ends.back().offset + ends.back().slots * ends.back().stride;
}

int64_t channel_bytes(const std::vector<RouteEnd>& ends) {
  int64_t row = 0;
  for (const RouteEnd& end : ends) {
    const graph::TensorType& type = end.route.edge.type;
    if (end.route.converts()) {
      row = std::max(row, type.elements() / type.shape[0] * graph::size_of(type.dtype));
    }
  }
  return ring_bytes(ends) + aligned_bytes(row);
}

}  // namespace millrace::parallel
