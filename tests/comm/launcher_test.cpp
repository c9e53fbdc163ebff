#include "comm/launcher.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>

#include "base/error.h"

namespace millrace::comm {
namespace {

// The place that a launcher's variables tell.
LaunchPlace place_of(const std::map<std::string, std::string>& variables) {
  for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  const LaunchPlace place = launch_place();
  for (const auto& [name, value] : variables) unsetenv(name.c_str());
  return place;
}

TEST(Launcher, OpenMpi) {
  const LaunchPlace place = place_of({{"OMPI_COMM_WORLD_SIZE", "4"},
                                      {"OMPI_COMM_WORLD_RANK", "3"},
                                      {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                      {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}});
  EXPECT_EQ(place.ranks, 4);
  EXPECT_EQ(place.rank, 3);
  EXPECT_EQ(place.local_ranks, 2);
  EXPECT_EQ(place.local_rank, 1);
}

TEST(Launcher, Mpich) {
  const LaunchPlace place = place_of(
      {{"PMI_SIZE", "3"}, {"PMI_RANK", "2"}, {"MPI_LOCALNRANKS", "3"}, {"MPI_LOCALRANKID", "2"}});
  EXPECT_EQ(place.ranks, 3);
  EXPECT_EQ(place.rank, 2);
  EXPECT_EQ(place.local_ranks, 3);
  EXPECT_EQ(place.local_rank, 2);
}

TEST(Launcher, Slurm) {
  const LaunchPlace place = place_of({{"SLURM_STEP_NUM_TASKS", "7"},
                                      {"SLURM_PROCID", "5"},
                                      {"SLURM_NODEID", "2"},
                                      {"SLURM_LOCALID", "1"},
                                      {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"}});
  EXPECT_EQ(place.ranks, 7);
  EXPECT_EQ(place.rank, 5);
  EXPECT_EQ(place.local_ranks, 2);
  EXPECT_EQ(place.local_rank, 1);
}

TEST(Launcher, SlurmsLastNodeMayHaveFewerTasks) {
  const LaunchPlace place = place_of({{"SLURM_STEP_NUM_TASKS", "7"},
                                      {"SLURM_PROCID", "6"},
                                      {"SLURM_NODEID", "3"},
                                      {"SLURM_LOCALID", "0"},
                                      {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"}});
  EXPECT_EQ(place.rank, 6);
  EXPECT_EQ(place.local_ranks, 1);
}

TEST(Launcher, SlurmsTasksThatNothingJoinsAreRefused) {
  setenv("SLURM_STEP_NUM_TASKS", "2", 1);
  EXPECT_THROW(launcher_family(), InputError);
  setenv("SLURM_STEP_NUM_TASKS", "1", 1);
  EXPECT_EQ(launcher_family(), std::nullopt);
  unsetenv("SLURM_STEP_NUM_TASKS");
}

TEST(Launcher, Families) {
  const auto family_of = [](const char* variable, const char* second = "MILLRACE_UNUSED") {
    setenv(variable, "2", 1);
    setenv(second, "2", 1);
    const std::optional<MpiFamily> family = launcher_family();
    unsetenv(variable);
    unsetenv(second);
    return family;
  };
  EXPECT_EQ(launcher_family(), std::nullopt);
  EXPECT_EQ(family_of("OMPI_COMM_WORLD_SIZE"), MpiFamily::openmpi);
  EXPECT_EQ(family_of("PMI_SIZE", "PMI_RANK"), MpiFamily::mpich);
  EXPECT_EQ(family_of("PMIX_RANK", "SLURM_STEP_NUM_TASKS"), MpiFamily::openmpi);
}

TEST(Launcher, BindingOfOpenMpi) {
  EXPECT_EQ(launch_place().binding, Binding::none);
  EXPECT_EQ(place_of({{"OMPI_MCA_orte_bound_at_launch", "1"}}).binding, Binding::by_default);
  EXPECT_EQ(place_of({{"OMPI_MCA_orte_bound_at_launch", "1"},
                      {"OMPI_MCA_hwloc_base_binding_policy", "socket"}})
                .binding,
            Binding::as_asked);
}

TEST(Launcher, NonsenseCountsAsNotSaid) {
  for (const char* text : {"", "x", "-1", "0", "3x", "99999999999999999999"}) {
    EXPECT_EQ(place_of({{"PMI_SIZE", text}, {"PMI_RANK", text}}).ranks, 1) << text;
  }
  EXPECT_EQ(place_of({{"PMI_SIZE", "2"}, {"PMI_RANK", "2"}}).rank, 0);
}

TEST(Launcher, AloneWithoutOne) {
  EXPECT_EQ(launched_ranks(), 1);
  EXPECT_EQ(launch_place().local_ranks, 1);
}

}  // namespace
}  // namespace millrace::comm
