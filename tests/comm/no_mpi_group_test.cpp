#include <gtest/gtest.h>

#include <cstdlib>
#include <span>

#include "base/error.h"
#include "comm/mpi_group.h"

namespace millrace {
namespace {

TEST(NoMpi, OneProcessIsAJobOfOneRank) {
  EXPECT_FALSE(mpi_available());
  const MpiSession session;
  EXPECT_EQ(session.size(), 1);
  Group world = mpi_world(session);
  std::vector<float> data = {3.0f};
  world.all_reduce(std::span(data));
  EXPECT_EQ(data[0], 3.0f);
}

TEST(NoMpi, OneOfManyRanksIsRefused) {
  setenv("PMI_SIZE", "2", 1);
  EXPECT_THROW(MpiSession(), InputError);
  unsetenv("PMI_SIZE");
}

}  // namespace
}  // namespace millrace
