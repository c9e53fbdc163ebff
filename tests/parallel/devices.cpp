#include "devices.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <thread>

#include "base/parallel.h"
#include "base/parts.h"
#include "graph/operator_definition.h"

namespace millrace::testing {
namespace {

// Calls body(place in the part, place in the whole).
template <typename Body>
void each_of_part(const graph::Shape& whole, const graph::Slice& slice, int64_t size, Body&& body) {
  int64_t outer = 1;
  int64_t inner = 1;
  for (size_t i = 0; i < whole.size(); ++i) {
    if (static_cast<int>(i) < slice.axis) outer *= whole[i];
    if (static_cast<int>(i) > slice.axis) inner *= whole[i];
  }
  size_t place = 0;
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t a = 0; a < size; ++a) {
      for (int64_t i = 0; i < inner; ++i) {
        body(place++, static_cast<size_t>((o * slice.whole + slice.begin + a) * inner + i));
      }
    }
  }
}

}  // namespace

Values part_of(const Values& whole, const graph::Shape& shape, const graph::Slice& slice,
               int64_t size) {
  if (slice.axis == graph::kNone) return whole;
  Values part(whole.size() / static_cast<size_t>(slice.whole) * static_cast<size_t>(size));
  each_of_part(shape, slice, size, [&](size_t here, size_t there) { part[here] = whole[there]; });
  return part;
}

Values joined(const std::vector<Values>& parts, const graph::Shape& whole,
              const graph::Sharding& sharding) {
  const auto members = static_cast<int>(parts.size());
  if (sharding.kind == graph::Sharding::Kind::broadcast) {
    for (const Values& part : parts) {
      if (part != parts[0]) return {};  // not the same everywhere
    }
    return parts[0];
  }
  Values result(static_cast<size_t>(graph::elements_of(whole)), 0);
  for (int m = 0; m < members; ++m) {
    const Values& part = parts[static_cast<size_t>(m)];
    if (sharding.kind == graph::Sharding::Kind::partial) {
      for (size_t i = 0; i < result.size(); ++i) result[i] += part.at(i);
      continue;
    }
    const int64_t extent = whole[static_cast<size_t>(sharding.axis)];
    const graph::Slice slice = {sharding.axis, part_begin(extent, m, members), extent};
    each_of_part(whole, slice, part_size(extent, m, members),
                 [&](size_t here, size_t there) { result[there] = part.at(here); });
  }
  return result;
}

Values Meeting::exchange(int member, const graph::Operator& op, const graph::Shape& shape,
                         const Values& values) {
  using Asked = graph::OperatorDefinition::Exchange;
  const auto members = static_cast<int>(shown_.size());
  shown_[static_cast<size_t>(member)] = values;
  barrier_.arrive_and_wait();
  const std::vector<Values> all = shown_;
  barrier_.arrive_and_wait();
  Values sums(values.size(), 0);
  const Asked asked = graph::definition_of(op.type).exchange;
  if (asked == Asked::sum || asked == Asked::scatter) {
    for (const Values& other : all) {
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += other.at(i);
    }
  }
  if (asked == Asked::sum) return sums;
  const auto axis = static_cast<int>(op.attributes.integer("axis"));
  const int64_t extent = op.attributes.integer("whole");
  if (asked == Asked::scatter) {
    return part_of(sums, shape, {axis, part_begin(extent, member, members), extent},
                   part_size(extent, member, members));
  }
  if (asked != Asked::gather) throw std::logic_error("nothing is posted here");
  graph::Shape whole = shape;
  whole.at(static_cast<size_t>(axis)) = extent;
  return joined(all, whole, graph::split(axis));
}

void run_together(int members, const std::function<void(int, Meeting&)>& body) {
  Meeting meeting(members);
  std::vector<std::thread> threads;
  for (int member = 0; member < members; ++member) {
    // A member that throws ends the test: the others would wait for it for ever.
    threads.emplace_back([&, member]() noexcept {
      set_team_size(1);
      body(member, meeting);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

std::vector<TensorValues> run_members(const std::vector<graph::Graph>& graphs,
                                      std::vector<TensorValues> values) {
  run_together(static_cast<int>(graphs.size()), [&](int member, Meeting& meeting) {
    const auto m = static_cast<size_t>(member);
    values[m] =
        interpret(graphs[m], std::move(values[m]), {}, {},
                  [&](const graph::Operator& op, const graph::Shape& shape, const Values& own) {
                    return meeting.exchange(member, op, shape, own);
                  });
  });
  return values;
}

TensorValues start_values(const graph::Graph& graph, const std::map<std::string, Values>& whole,
                          const graph::Graph& whole_graph) {
  TensorValues values;
  for (graph::TensorId id = 0; id < graph.tensor_count(); ++id) {
    const graph::Tensor& tensor = graph.tensor(id);
    if (!graph::is_persistent(tensor.role)) continue;
    const graph::Shape& shape = whole_graph.tensor(whole_graph.find_tensor(tensor.name)).type.shape;
    const int64_t size = tensor.slice.axis == graph::kNone
                             ? 0
                             : tensor.type.shape[static_cast<size_t>(tensor.slice.axis)];
    values[id] = part_of(whole.at(tensor.name), shape, tensor.slice, size);
  }
  return values;
}

double relative_error(const Values& actual, const Values& expected) {
  if (actual.size() != expected.size()) return std::numeric_limits<double>::infinity();
  double largest = 1e-3;
  double distance = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (std::isnan(actual[i])) return std::numeric_limits<double>::infinity();
    largest = std::max(largest, std::abs(expected[i]));
    distance = std::max(distance, std::abs(actual[i] - expected[i]));
  }
  return distance / largest;
}

}  // namespace millrace::testing
