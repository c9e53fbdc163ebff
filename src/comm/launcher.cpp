#include "comm/launcher.h"

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

namespace millrace {
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

}  // namespace

LaunchPlace launch_place() {
  LaunchPlace place;
  place.ranks = read_number({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}, 1, 1);
  place.rank = read_number({"OMPI_COMM_WORLD_RANK", "PMI_RANK"}, 0, 0);
  place.local_ranks = read_number({"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"}, 1, 1);
  place.local_rank = read_number({"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"}, 0, 0);
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

}  // namespace millrace
