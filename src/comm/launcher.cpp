#include "comm/launcher.h"

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/text.h"

namespace millrace::comm {
namespace {

constexpr int kLargest = 1'000'000;

// The first of the variables that holds a number from `smallest` on, or `otherwise`.
int read_number(std::initializer_list<const char*> variables, int smallest, int otherwise) {
  for (const char* variable : variables) {
    const char* text = std::getenv(variable);
    if (text == nullptr) continue;
    int number = 0;
    const char* end = text + std::strlen(text);
    const auto [stopped, error] = std::from_chars(text, end, number);
    if (error == std::errc() && stopped == end && number >= smallest && number <= kLargest) {
      return number;
    }
  }
  return otherwise;
}

bool is_set(const char* variable) { return std::getenv(variable) != nullptr; }

// Tasks on this node, from Slurm's list of all nodes: "2(x3),1" is 2, 2, 2 and 1.
int slurm_local_tasks() {
  const char* list = std::getenv("SLURM_STEP_TASKS_PER_NODE");
  int node = read_number({"SLURM_NODEID"}, 0, 0);
  if (list == nullptr) return 1;
  for (const std::string& part : split(list, ',')) {
    int tasks = 0;
    int nodes = 1;
    const char* end = part.data() + part.size();
    const auto [stopped, error] = std::from_chars(part.data(), end, tasks);
    if (error != std::errc() || tasks < 1 || tasks > kLargest) return 1;
    const std::string_view rest(stopped, static_cast<size_t>(end - stopped));
    if (rest.starts_with("(x")) std::from_chars(rest.data() + 2, end, nodes);
    if (node < nodes) return tasks;
    node -= nodes;
  }
  return 1;
}

}  // namespace

const char* name_of(MpiFamily family) { return family == MpiFamily::openmpi ? "openmpi" : "mpich"; }

std::optional<MpiFamily> launcher_family() {
  if (is_set("OMPI_COMM_WORLD_SIZE")) return MpiFamily::openmpi;
  if (is_set("PMI_RANK") && is_set("PMI_SIZE")) return MpiFamily::mpich;
  if (is_set("PMIX_RANK")) return MpiFamily::openmpi;
  const int tasks = read_number({"SLURM_STEP_NUM_TASKS"}, 1, 1);
  if (tasks == 1) return std::nullopt;
  const char* type = std::getenv("SLURM_MPI_TYPE");
  fail_input(
      "srun started this process as one of {} tasks with --mpi={}, which cannot join them; use "
      "'srun --mpi=pmix' with Open MPI or 'srun --mpi=pmi2' with MPICH, or -n 1.",
      tasks, type == nullptr ? "none" : type);
}

LaunchPlace launch_place() {
  LaunchPlace place;
  place.ranks = read_number({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}, 1, 1);
  place.rank = read_number({"OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"}, 0, 0);
  place.local_ranks =
      read_number({"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"}, 1, slurm_local_tasks());
  place.local_rank =
      read_number({"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"}, 0, 0);
  if (read_number({"OMPI_MCA_orte_bound_at_launch"}, 1, 0) == 1) {
    const bool asked = std::getenv("OMPI_MCA_hwloc_base_binding_policy") != nullptr;
    place.binding = asked ? Binding::as_asked : Binding::by_default;
  }
  if (place.rank >= place.ranks) place.rank = 0;
  if (place.local_ranks > place.ranks) place.local_ranks = 1;
  if (place.local_rank >= place.local_ranks) place.local_rank = 0;
  return place;
}

int launched_ranks() { return launch_place().ranks; }

}  // namespace millrace::comm
