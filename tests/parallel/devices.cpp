#include "devices.h"

#include <algorithm>
#include <barrier>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <thread>

#include "base/parallel.h"
#include "base/parts.h"

namespace millrace::testing {
namespace {

struct Meeting {
  explicit Meeting(int members) : barrier(members), shown(static_cast<size_t>(members)) {}

  std::barrier<> barrier;
  std::vector<const std::byte*> shown;
};

class TestCollectives : public Collectives {
 public:
  TestCollectives(Meeting& meeting, int member) : meeting_(meeting), member_(member) {}

  int members() const override { return static_cast<int>(meeting_.shown.size()); }
  int member() const override { return member_; }

  void all_reduce(std::span<float> values) override {
    const std::vector<float> sums = summed(values.data(), values.size());
    std::copy(sums.begin(), sums.end(), values.begin());
  }

  void reduce_scatter(std::span<const float> whole, std::span<float> part, int64_t block) override {
    const auto blocks = static_cast<int64_t>(whole.size()) / block;
    if (static_cast<int64_t>(part.size()) != part_size(blocks, member_, members()) * block) {
      throw std::logic_error("a part of another size");
    }
    const std::vector<float> sums = summed(whole.data(), whole.size());
    const auto begin = sums.begin() + part_begin(blocks, member_, members()) * block;
    std::copy(begin, begin + static_cast<int64_t>(part.size()), part.begin());
  }

  void all_reduce(std::span<float>, DataType) override {
    throw std::logic_error("nothing travels narrowed here");
  }
  void reduce_scatter(std::span<const float>, std::span<float>, int64_t, DataType) override {
    throw std::logic_error("nothing travels narrowed here");
  }

  void all_gather(std::span<const std::byte> part, std::span<std::byte> whole,
                  int64_t block_bytes) override {
    const auto blocks = static_cast<int64_t>(whole.size()) / block_bytes;
    if (static_cast<int64_t>(part.size()) != part_size(blocks, member_, members()) * block_bytes) {
      throw std::logic_error("a part of another size");
    }
    show(part.data());
    for (int m = 0; m < members(); ++m) {
      std::memcpy(whole.data() + part_begin(blocks, m, members()) * block_bytes,
                  meeting_.shown[static_cast<size_t>(m)],
                  static_cast<size_t>(part_size(blocks, m, members()) * block_bytes));
    }
    meeting_.barrier.arrive_and_wait();
  }

  void post(int, BackgroundWork&) override { throw std::logic_error("nothing is posted here"); }
  void wait(int) override { throw std::logic_error("nothing is posted here"); }

 private:
  void show(const void* values) {
    meeting_.shown[static_cast<size_t>(member_)] = static_cast<const std::byte*>(values);
    meeting_.barrier.arrive_and_wait();
  }

  std::vector<float> summed(const float* values, size_t count) {
    show(values);
    std::vector<float> sums(count, 0);
    for (const std::byte* other : meeting_.shown) {
      for (size_t i = 0; i < count; ++i) sums[i] += reinterpret_cast<const float*>(other)[i];
    }
    meeting_.barrier.arrive_and_wait();
    return sums;
  }

  Meeting& meeting_;
  const int member_;
};

// Calls body(place in the part, place in the whole).
template <typename Body>
void each_of_part(const Shape& whole, const Slice& slice, int64_t size, Body&& body) {
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

Values part_of(const Values& whole, const Shape& shape, const Slice& slice, int64_t size) {
  if (slice.axis == kNone) return whole;
  Values part(whole.size() / static_cast<size_t>(slice.whole) * static_cast<size_t>(size));
  each_of_part(shape, slice, size, [&](size_t here, size_t there) { part[here] = whole[there]; });
  return part;
}

Values joined(const std::vector<Values>& parts, const Shape& whole, const Sharding& sharding) {
  const auto members = static_cast<int>(parts.size());
  if (sharding.kind == Sharding::Kind::broadcast) {
    for (const Values& part : parts) {
      if (part != parts[0]) return {};  // not the same everywhere
    }
    return parts[0];
  }
  Values result(static_cast<size_t>(elements_of(whole)), 0);
  for (int m = 0; m < members; ++m) {
    const Values& part = parts[static_cast<size_t>(m)];
    if (sharding.kind == Sharding::Kind::partial) {
      for (size_t i = 0; i < result.size(); ++i) result[i] += part.at(i);
      continue;
    }
    const int64_t extent = whole[static_cast<size_t>(sharding.axis)];
    const Slice slice = {sharding.axis, part_begin(extent, m, members), extent};
    each_of_part(whole, slice, part_size(extent, m, members),
                 [&](size_t here, size_t there) { result[there] = part.at(here); });
  }
  return result;
}

void run_together(int members, const std::function<void(int, Collectives&)>& body) {
  Meeting meeting(members);
  std::vector<std::thread> threads;
  for (int member = 0; member < members; ++member) {
    // A member that throws ends the test: the others would wait for it for ever.
    threads.emplace_back([&, member]() noexcept {
      set_team_size(1);
      TestCollectives collectives(meeting, member);
      body(member, collectives);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

std::vector<TensorValues> run_members(const std::vector<Graph>& graphs,
                                      std::vector<TensorValues> values) {
  run_together(static_cast<int>(graphs.size()), [&](int member, Collectives& collectives) {
    const auto m = static_cast<size_t>(member);
    values[m] = interpret(graphs[m], std::move(values[m]), {}, {}, &collectives);
  });
  return values;
}

TensorValues start_values(const Graph& graph, const std::map<std::string, Values>& whole,
                          const Graph& whole_graph) {
  TensorValues values;
  for (TensorId id = 0; id < graph.tensor_count(); ++id) {
    const Tensor& tensor = graph.tensor(id);
    if (!is_persistent(tensor.role)) continue;
    const Shape& shape = whole_graph.tensor(whole_graph.find_tensor(tensor.name)).type.shape;
    const int64_t size =
        tensor.slice.axis == kNone ? 0 : tensor.type.shape[static_cast<size_t>(tensor.slice.axis)];
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
