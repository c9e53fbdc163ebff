#include "cli/hosts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace millrace::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Hosts, OpenMpiStartsARankOnEach) {
  EXPECT_THAT(
      launcher_command("a,b", "/bin/millrace", {"train", "--hosts", "a,b", "--steps", "3"},
                       {.kind = LauncherKind::openmpi, .root = true, .variables = {"OMP_X"}}),
      ElementsAre("mpirun.openmpi", "--host", "a,b", "-n", "2", "--bind-to", "none",
                  "--allow-run-as-root", "-x", "OMP_X", "/bin/millrace", "train", "--steps", "3"));
}

TEST(Hosts, MpichTakesSeveralRanksOnOneHost) {
  EXPECT_THAT(
      launcher_command("node-1.x:2,b", "p", {"train", "--hosts=node-1.x:2,b", "--quiet"},
                       {.kind = LauncherKind::mpich, .variables = {}}),
      ElementsAre("mpiexec.mpich", "-hosts", "node-1.x:2,b", "-n", "3", "p", "train", "--quiet"));
}

TEST(Hosts, OtherEntriesAreRefused) {
  for (const char* hosts : {"", ",", "a,", "a,,b", "a b", "-x", "a:0", "a:", "a:x", "a:99999999999",
                            "a:4096,b", "a;rm", "a:1:2"}) {
    try {
      launcher_command(hosts, "p", {}, {});
      ADD_FAILURE() << hosts;
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), HasSubstr("--hosts"));
    }
  }
}

}  // namespace
}  // namespace millrace::cli
