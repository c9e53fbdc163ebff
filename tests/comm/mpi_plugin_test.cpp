#include "comm/mpi_plugin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <span>
#include <string>

#include "base/error.h"

namespace millrace::comm {
namespace {

using ::testing::HasSubstr;

// Sets variables of the environment for a while.
class Environment {
 public:
  explicit Environment(std::map<std::string, std::string> variables)
      : variables_(std::move(variables)) {
    for (const auto& [name, value] : variables_) setenv(name.c_str(), value.c_str(), 1);
  }
  ~Environment() {
    for (const auto& [name, value] : variables_) unsetenv(name.c_str());
  }

 private:
  std::map<std::string, std::string> variables_;
};

// What a session says when it is started with these variables.
std::string refusal(std::map<std::string, std::string> variables) {
  const Environment environment(std::move(variables));
  try {
    const MpiSession session;
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(MpiPlugin, OneProcessIsAJobOfOneRankAndOpensNone) {
  const MpiSession session;
  EXPECT_EQ(session.size(), 1);
  EXPECT_EQ(session.mpi_version(), "none");
  Group world = mpi_world(session);
  std::vector<float> data = {3.0f};
  world.all_reduce(std::span(data));
  EXPECT_EQ(data[0], 3.0f);
}

TEST(MpiPlugin, AMissingOneIsNamed) {
  EXPECT_THAT(refusal({{"PMI_SIZE", "2"}, {"PMI_RANK", "0"}}), HasSubstr("libmillrace_mpich.so"));
  EXPECT_THAT(refusal({{"OMPI_COMM_WORLD_SIZE", "2"}}), HasSubstr("libmillrace_openmpi.so"));
  EXPECT_THAT(refusal({{"PMIX_RANK", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}}),
              HasSubstr("libmillrace_openmpi.so"));
  EXPECT_FALSE(has_mpi_plugin(MpiFamily::openmpi));
}

TEST(MpiPlugin, ABrokenOneIsNamed) {
  const std::filesystem::path directory =
      std::filesystem::path(::testing::TempDir()) / "broken_plugins";
  std::filesystem::create_directories(directory);
  std::ofstream(directory / "libmillrace_mpich.so") << "no library";
  const std::string sentence =
      refusal({{"PMI_SIZE", "2"}, {"PMI_RANK", "0"}, {"MILLRACE_PLUGINS", directory.string()}});
  EXPECT_THAT(sentence, HasSubstr((directory / "libmillrace_mpich.so").string()));
  EXPECT_THAT(sentence, HasSubstr("cannot be opened"));
  std::filesystem::remove_all(directory);
}

TEST(MpiPlugin, SeveralTasksThatNothingJoinsAreRefused) {
  const std::string sentence = refusal({{"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_PROCID", "0"}});
  EXPECT_THAT(sentence, HasSubstr("one of 2 tasks with --mpi=none"));
  EXPECT_THAT(refusal({{"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_MPI_TYPE", "openmpi"}}),
              HasSubstr("--mpi=openmpi"));
  EXPECT_EQ(refusal({{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_PROCID", "0"}}), "");
}

}  // namespace
}  // namespace millrace::comm
