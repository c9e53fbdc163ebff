#include "parallel/channels.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>

#include "base/parts.h"

namespace millrace::parallel {
namespace {

RouteRequest request_of(const std::vector<int>& replicas, int64_t rows, bool round_robin,
                        bool shared = false) {
  RouteRequest request;
  int device = 0;
  for (int count : replicas) {
    auto& stage = request.devices.emplace_back();
    if (shared) device = 0;
    for (int i = 0; i < count; ++i) stage.push_back(device++);
  }
  const int stages = static_cast<int>(replicas.size());
  for (int stage = 0; stage + 1 < stages; ++stage) {
    request.edges.push_back({std::to_string(stage), {{rows, 5}}, stage, stage + 1, stage != 1});
    request.channels.push_back({stage, stage + 1, 2});
    request.channels.push_back({stage + 1, stage, 2});
  }
  if (stages > 2) {
    request.edges.push_back({"0", {{rows, 3, 2}}, 0, stages - 1, true});
    request.channels.push_back({0, stages - 1, 7});
    request.channels.push_back({stages - 1, 0, 7});
  }
  request.round_robin = round_robin;
  return request;
}

// For every micro-batch, edge, direction and member that runs it: how often each row arrives.
void expect_each_row_once(const RouteRequest& request, int64_t micro_batches) {
  const std::vector<Route> routes = routes_between(request);
  for (int64_t m = 0; m < micro_batches; ++m) {
    for (const StageEdge& edge : request.edges) {
      for (const bool gradient : {false, true}) {
        const int to = gradient ? edge.from : edge.to;
        const auto members = static_cast<int>(request.devices[static_cast<size_t>(to)].size());
        const int64_t rows = edge.type.shape[0];
        for (int member = 0; member < members; ++member) {
          std::map<int64_t, int> arrived;
          for (const Route& route : routes) {
            if (route.edge != edge || route.gradient != gradient || route.to_member != member ||
                !route.carries(m)) {
              continue;
            }
            for (int64_t row = route.rows.begin; row < route.rows.end; ++row) ++arrived[row];
          }
          std::map<int64_t, int> expected;
          const bool wanted =
              (!gradient || edge.has_gradient) && (!request.round_robin || m % members == member);
          for (int64_t row = 0; wanted && row < rows; ++row) {
            const bool held = request.round_robin || (row >= part_begin(rows, member, members) &&
                                                      row < part_begin(rows, member + 1, members));
            if (held) expected[row] = 1;
          }
          ASSERT_EQ(arrived, expected) << edge.name << " to member " << member;
        }
      }
    }
  }
}

const std::vector<std::vector<int>> kShapes = {{1, 1}, {7, 1},    {1, 3},       {2, 3},
                                               {3, 2}, {4, 2, 3}, {1, 1, 1, 1}, {2, 2}};

TEST(Routes, EveryRowArrivesOnce) {
  for (const auto& shape : kShapes) {
    for (int64_t rows : {7, 8, 13}) {
      expect_each_row_once(request_of(shape, rows, false), 1);
      expect_each_row_once(request_of(shape, rows, true), 24);
    }
  }
}

TEST(Routes, TagsTellApartWhatGoesBetweenTwoDevices) {
  for (const bool shared : {false, true}) {
    for (const auto& shape : kShapes) {
      std::set<std::tuple<int, int, int>> seen;
      for (const Route& route : routes_between(request_of(shape, 9, false, shared))) {
        EXPECT_TRUE(seen.insert({route.from_device, route.to_device, route.tag}).second);
      }
      EXPECT_FALSE(seen.empty());
    }
  }
}

// Both ends of every route have buffers, none of which overlap, all inside the area.
TEST(Routes, BuffersLieApart) {
  const RouteRequest request = request_of({4, 2, 3}, 13, false);
  const std::vector<Route> routes = routes_between(request);
  size_t ends = 0;
  for (int stage = 0; stage < 3; ++stage) {
    for (int member = 0; member < std::ssize(request.devices[static_cast<size_t>(stage)]);
         ++member) {
      std::map<int64_t, int64_t> buffers;
      const std::vector<RouteEnd> own = ends_of(routes, stage, member, 1);
      for (const RouteEnd& end : own) {
        EXPECT_EQ(end.slots, end.sends ? 1 : std::abs(end.route.from_stage() - stage) == 2 ? 7 : 2);
        EXPECT_EQ(end.route.bytes, (end.route.rows.end - end.route.rows.begin) * 4 *
                                       (end.route.edge.type.shape.size() == 2 ? 5 : 6));
        for (int64_t i = 0; i < end.slots; ++i) {
          buffers[end.offset + i * end.stride] = end.route.bytes;
        }
      }
      int64_t last = 0;
      for (const auto& [begin, bytes] : buffers) {
        EXPECT_GE(begin, last);
        EXPECT_EQ(begin % 64, 0);
        last = begin + bytes;
      }
      EXPECT_LE(last, channel_bytes(own));
      ends += own.size();
    }
  }
  EXPECT_EQ(ends, 2 * routes.size());
}

// Rings of half the size, and room for one float32 row of the widest tensor that is converted.
TEST(Routes, SixteenBitsTakeHalfTheRings) {
  const RouteRequest full = request_of({4, 2, 3}, 64, false);
  RouteRequest half = full;
  half.wire = graph::DataType::bf16;
  half.edges.push_back({"labels", {{64, 9}, graph::DataType::s32}, 0, 1, false});
  const std::vector<Route> routes = routes_between(half);
  for (const Route& route : routes) {
    const bool labels = route.edge.name == "labels";
    EXPECT_EQ(route.converts(), !labels);
    const int64_t elements = graph::elements_of(route.edge.type.shape) / 64;
    EXPECT_EQ(route.bytes, (route.rows.end - route.rows.begin) * elements * (labels ? 4 : 2));
  }
  const auto total = [](const RouteRequest& request, int stage) {
    return channel_bytes(ends_of(routes_between(request), stage, 0));
  };
  half.edges.pop_back();
  const int64_t rings = ring_bytes(ends_of(routes_between(half), 2, 0));
  EXPECT_EQ(total(half, 2), rings + 64);
  EXPECT_EQ(ring_bytes(ends_of(routes_between(full), 2, 0)), total(full, 2));
  EXPECT_LE(rings, total(full, 2) * 6 / 10);
}

}  // namespace
}  // namespace millrace::parallel
