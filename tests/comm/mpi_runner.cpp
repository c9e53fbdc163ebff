#include <gtest/gtest.h>

#include <memory>
#include <numeric>

#include "comm/mpi_group.h"
#include "member_runner.h"

namespace millrace {
namespace {

constexpr int kRanks = 3;

// Set by main for the time of the tests.
std::unique_ptr<MpiSession> session;

}  // namespace

std::vector<int> member_counts() { return {1, 2, kRanks}; }

void run_members(int members, int groups, const std::function<void(std::vector<Group>&)>& body) {
  if (session->rank() < members) {
    std::vector<int> ranks(static_cast<size_t>(members));
    std::iota(ranks.begin(), ranks.end(), 0);
    std::vector<Group> handles;
    for (int group = 0; group < groups; ++group) handles.push_back(mpi_group(*session, ranks));
    body(handles);
  }
  mpi_world(*session).barrier();
}

TEST(MpiGroup, TakesRanksInTheOrderGiven) {
  ASSERT_TRUE(mpi_available());
  ASSERT_EQ(session->size(), kRanks);
  const int rank = session->rank();
  Group group = mpi_group(*session, {2, 0, 1});
  EXPECT_EQ(group.rank(), (rank + 1) % kRanks);
  EXPECT_EQ(group.name(0).substr(0, 15), "rank 2 on host ");
  std::vector<int32_t> data = {rank};
  group.broadcast(std::span(data), 0);
  EXPECT_EQ(data[0], 2);
}

}  // namespace millrace

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  millrace::session = std::make_unique<millrace::MpiSession>();
  if (millrace::session->rank() != 0) {
    delete ::testing::UnitTest::GetInstance()->listeners().Release(
        ::testing::UnitTest::GetInstance()->listeners().default_result_printer());
  }
  int failed = millrace::session->size() == millrace::kRanks ? RUN_ALL_TESTS() : 1;
  millrace::Group world = millrace::mpi_world(*millrace::session);
  std::vector<int32_t> sum = {failed};
  world.all_reduce(std::span(sum));
  world.barrier();
  if (sum[0] != 0 && failed == 0) std::puts("a test failed on another rank");
  return sum[0] == 0 ? 0 : 1;
}
