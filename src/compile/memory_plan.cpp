#include "compile/memory_plan.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace millrace::compile {
namespace {

using Order = std::function<bool(const BufferRequest&, const BufferRequest&)>;

bool overlap(const BufferRequest& a, const BufferRequest& b) {
  return a.first <= b.last && b.first <= a.last;
}

// Places the requests in the given order, each at the lowest gap that holds it.
MemoryPlan place(const std::vector<BufferRequest>& requests, const Order& before) {
  std::vector<size_t> sequence(requests.size());
  std::iota(sequence.begin(), sequence.end(), size_t{0});
  std::stable_sort(sequence.begin(), sequence.end(),
                   [&](size_t a, size_t b) { return before(requests[a], requests[b]); });
  MemoryPlan plan;
  plan.offsets.assign(requests.size(), 0);
  std::vector<size_t> placed;  // by ascending offset
  for (size_t index : sequence) {
    const int64_t size = aligned(requests[index].bytes);
    int64_t offset = 0;
    for (size_t other : placed) {
      if (!overlap(requests[index], requests[other])) continue;
      if (plan.offsets[other] - offset >= size) break;
      offset = std::max(offset, plan.offsets[other] + aligned(requests[other].bytes));
    }
    plan.offsets[index] = offset;
    plan.bytes = std::max(plan.bytes, offset + size);
    const auto position =
        std::upper_bound(placed.begin(), placed.end(), offset,
                         [&](int64_t value, size_t other) { return value < plan.offsets[other]; });
    placed.insert(position, index);
  }
  return plan;
}

}  // namespace

int64_t aligned(int64_t bytes) {
  return (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
}

MemoryPlan plan_memory(const std::vector<BufferRequest>& requests) {
  const auto span = [](const BufferRequest& r) {
    return static_cast<double>(r.last - r.first + 1);
  };
  const std::vector<Order> orders = {
      [](const BufferRequest& a, const BufferRequest& b) { return a.bytes > b.bytes; },
      [&](const BufferRequest& a, const BufferRequest& b) {
        return span(a) * static_cast<double>(a.bytes) > span(b) * static_cast<double>(b.bytes);
      },
      [&](const BufferRequest& a, const BufferRequest& b) {
        return span(a) != span(b) ? span(a) > span(b) : a.bytes > b.bytes;
      },
      [](const BufferRequest& a, const BufferRequest& b) {
        return a.first != b.first ? a.first < b.first : a.bytes > b.bytes;
      }};
  MemoryPlan best;
  for (const Order& order : orders) {
    MemoryPlan plan = place(requests, order);
    if (best.offsets.empty() || plan.bytes < best.bytes) best = std::move(plan);
  }

  int end = 0;
  for (const BufferRequest& request : requests) end = std::max(end, request.last);
  std::vector<int64_t> change(static_cast<size_t>(end) + 2, 0);
  for (const BufferRequest& request : requests) {
    change[static_cast<size_t>(request.first)] += aligned(request.bytes);
    change[static_cast<size_t>(request.last) + 1] -= aligned(request.bytes);
  }
  int64_t in_use = 0;
  for (size_t position = 0; position < change.size(); ++position) {
    in_use += change[position];
    if (in_use > best.lower_bound) {
      best.lower_bound = in_use;
      best.peak_position = static_cast<int>(position);
    }
  }
  return best;
}

}  // namespace millrace::compile
