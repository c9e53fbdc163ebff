#include <gtest/gtest.h>

#include <numeric>

#include "member_runner.h"
#include "mpi_tests.h"

namespace millrace::comm {
namespace {

constexpr int kRanks = 3;

}  // namespace

std::vector<int> member_counts() { return {1, 2, kRanks}; }

void run_members(int members, int groups, const std::function<void(std::vector<Group>&)>& body) {
  MpiSession& session = test_session();
  if (session.rank() < members) {
    std::vector<int> ranks(static_cast<size_t>(members));
    std::iota(ranks.begin(), ranks.end(), 0);
    std::vector<Group> handles;
    for (int group = 0; group < groups; ++group) handles.push_back(mpi_group(session, ranks));
    body(handles);
  }
  mpi_world(session).barrier();
}

TEST(MpiGroup, TakesRanksInTheOrderGiven) {
  ASSERT_NE(test_session().mpi_version(), "none");
  const int rank = test_session().rank();
  Group group = mpi_group(test_session(), {2, 0, 1});
  EXPECT_EQ(group.rank(), (rank + 1) % kRanks);
  EXPECT_EQ(group.name(0).substr(0, 15), "rank 2 on host ");
  std::vector<int32_t> data = {rank};
  group.broadcast(std::span(data), 0);
  EXPECT_EQ(data[0], 2);
}

}  // namespace millrace::comm

int main(int argc, char** argv) {
  return millrace::comm::run_mpi_tests(argc, argv, millrace::comm::kRanks);
}
