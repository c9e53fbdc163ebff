#include "backend/cpu/cores.h"

#include <hwloc.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <set>

#include "base/error.h"
#include "base/parts.h"

namespace millrace::backend {
namespace {

using Bitmap = std::unique_ptr<hwloc_bitmap_s, decltype(&hwloc_bitmap_free)>;

Bitmap make_bitmap() { return {hwloc_bitmap_alloc(), hwloc_bitmap_free}; }

// The part of the machine's map that concerns cores.
class ProcessorCores {
 public:
  ProcessorCores() {
    if (hwloc_topology_init(&topology_) != 0) return;
    loaded_ = hwloc_topology_load(topology_) == 0;
  }
  ~ProcessorCores() {
    if (topology_ != nullptr) hwloc_topology_destroy(topology_);
  }
  ProcessorCores(const ProcessorCores&) = delete;
  ProcessorCores& operator=(const ProcessorCores&) = delete;

  // The cores that a process may use.
  std::vector<int> cores_of(pid_t process) const {
    if (!loaded_) return {};
    const Bitmap allowed = make_bitmap();
    if (hwloc_get_proc_cpubind(topology_, process, allowed.get(), 0) != 0) {
      hwloc_bitmap_copy(allowed.get(), hwloc_topology_get_allowed_cpuset(topology_));
    }
    std::vector<int> cores = first_units(HWLOC_OBJ_CORE, allowed.get());
    if (cores.empty()) cores = first_units(HWLOC_OBJ_PU, allowed.get());
    return cores;
  }

 private:
  // The first allowed processing unit of each object of the type.
  std::vector<int> first_units(hwloc_obj_type_t type, hwloc_const_bitmap_t allowed) const {
    std::vector<int> units;
    const Bitmap common = make_bitmap();
    hwloc_obj_t object = nullptr;
    while ((object = hwloc_get_next_obj_by_type(topology_, type, object)) != nullptr) {
      hwloc_bitmap_and(common.get(), object->cpuset, allowed);
      const int first = hwloc_bitmap_first(common.get());
      if (first >= 0) units.push_back(first);
    }
    return units;
  }

  hwloc_topology_t topology_ = nullptr;
  bool loaded_ = false;
};

std::vector<int> cores_of(pid_t process) {
  std::vector<int> cores = ProcessorCores().cores_of(process);
  if (cores.empty()) cores.push_back(std::max(0, ::sched_getcpu()));
  return cores;
}

}  // namespace

std::vector<int> usable_cores() { return cores_of(::getpid()); }

std::vector<int> host_cores() { return cores_of(::getppid()); }

int available_cores() { return static_cast<int>(usable_cores().size()); }

std::vector<std::vector<int>> divide_cores(const std::vector<int>& cores, int devices, int threads,
                                           bool oversubscribe) {
  if (devices < 1) fail_input("‹devices› is {}; a job needs at least one.", devices);
  if (threads < 0) fail_input("‹threads_per_device› is {}; it must not be negative.", threads);
  const int count = static_cast<int>(cores.size());
  const int team = threads > 0 ? threads : std::max(1, count / devices);
  const int64_t wanted = int64_t{team} * devices;
  if (wanted > count && !oversubscribe) {
    fail_input(
        "{} devices on this host with {} threads each need {} cores, but there are {}; use fewer "
        "devices, a smaller ‹threads_per_device›, or ‹oversubscribe› to let them share cores.",
        devices, team, wanted, count);
  }
  std::vector<std::vector<int>> teams(static_cast<size_t>(devices));
  for (int device = 0; device < devices; ++device) {
    const int64_t first =
        wanted > count ? int64_t{device} * team : part_begin(count, device, devices);
    for (int thread = 0; thread < team; ++thread) {
      teams[static_cast<size_t>(device)].push_back(
          cores[static_cast<size_t>((first + thread) % count)]);
    }
  }
  return teams;
}

DeviceCores cores_of_devices(const comm::LaunchPlace& place, int devices, int threads,
                             bool oversubscribe) {
  const bool alone = place.local_ranks == 1 || place.binding == comm::Binding::as_asked;
  const bool widen = place.binding == comm::Binding::by_default;
  const std::vector<int> cores = widen ? host_cores() : usable_cores();
  const int everyone = alone ? devices : devices * place.local_ranks;
  const auto teams = divide_cores(cores, everyone, threads, oversubscribe);
  const auto first = teams.begin() + (alone ? 0 : devices * place.local_rank);
  DeviceCores result = {{first, first + devices}, {}};
  const size_t wanted = teams.size() * teams.front().size();
  if (wanted > cores.size()) {
    result.note = fmt::format(
        "{} threads share {} cores on this host, as ‹oversubscribe› allows; expect it to be slow.",
        wanted, cores.size());
  }
  return result;
}

void keep_to(const std::vector<int>& cores) {
  const int largest = *std::max_element(cores.begin(), cores.end());
  const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(
      CPU_ALLOC(static_cast<size_t>(largest) + 1), [](cpu_set_t* memory) { CPU_FREE(memory); });
  const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(largest) + 1);
  CPU_ZERO_S(bytes, set.get());
  for (const int core : cores) CPU_SET_S(static_cast<size_t>(core), bytes, set.get());
  ::sched_setaffinity(0, bytes, set.get());
}

}  // namespace millrace::backend
