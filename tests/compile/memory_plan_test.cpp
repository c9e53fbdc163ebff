#include "compile/memory_plan.h"

#include <gtest/gtest.h>

#include "base/random.h"

namespace millrace::compile {
namespace {

void expect_sound(const std::vector<BufferRequest>& requests, const MemoryPlan& plan) {
  ASSERT_EQ(plan.offsets.size(), requests.size());
  int64_t end = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(plan.offsets[i] % kBufferAlignment, 0);
    end = std::max(end, plan.offsets[i] + aligned(requests[i].bytes));
    for (size_t j = 0; j < i; ++j) {
      const bool together =
          requests[i].first <= requests[j].last && requests[j].first <= requests[i].last;
      const bool apart = plan.offsets[i] + requests[i].bytes <= plan.offsets[j] ||
                         plan.offsets[j] + requests[j].bytes <= plan.offsets[i];
      EXPECT_TRUE(!together || apart) << i << " and " << j;
    }
  }
  EXPECT_EQ(plan.bytes, end);
  EXPECT_GE(plan.bytes, plan.lower_bound);
}

TEST(MemoryPlan, ReusesMemoryOfBuffersThatAreDone) {
  const std::vector<BufferRequest> requests = {{0, 1, 640}, {1, 2, 640}, {2, 3, 640}};
  const MemoryPlan plan = plan_memory(requests);
  expect_sound(requests, plan);
  EXPECT_EQ(plan.bytes, 1280);
  EXPECT_EQ(plan.lower_bound, 1280);
}

TEST(MemoryPlan, NothingNeedsNothing) { EXPECT_EQ(plan_memory({}).bytes, 0); }

TEST(MemoryPlan, RandomRequestsNeverCollideAndStayNearTheBound) {
  for (uint64_t round = 0; round < 50; ++round) {
    const Random random(round, 0);
    std::vector<BufferRequest> requests;
    for (uint64_t i = 0; i < 120; ++i) {
      const int first = static_cast<int>(random.below(i * 3, 100));
      const int last = first + static_cast<int>(random.below(i * 3 + 1, 20));
      requests.push_back({first, last, 1 + static_cast<int64_t>(random.below(i * 3 + 2, 100000))});
    }
    const MemoryPlan plan = plan_memory(requests);
    expect_sound(requests, plan);
    EXPECT_LT(static_cast<double>(plan.bytes), 1.3 * static_cast<double>(plan.lower_bound));
    int64_t in_use = 0;
    for (const BufferRequest& request : requests) {
      const bool alive = request.first <= plan.peak_position && plan.peak_position <= request.last;
      in_use += alive ? aligned(request.bytes) : 0;
    }
    EXPECT_EQ(in_use, plan.lower_bound);
  }
}

}  // namespace
}  // namespace millrace::compile
