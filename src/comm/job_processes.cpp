#include "comm/job_processes.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "comm/launcher.h"
#include "comm/launchers.h"

namespace millrace::comm {
namespace {

constexpr std::array<const char*, 2> kJobVariables = {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"};
constexpr std::array<const char*, 3> kRankVariables = {"OMPI_COMM_WORLD_RANK", "PMI_RANK",
                                                       "SLURM_PROCID"};

std::optional<std::string> variable_in(const std::string& block, const std::string& name) {
  const std::string key = name + "=";
  for (size_t begin = 0; begin < block.size();) {
    const size_t end = std::min(block.find('\0', begin), block.size());
    if (block.compare(begin, key.size(), key) == 0) {
      return block.substr(begin + key.size(), end - begin - key.size());
    }
    begin = end + 1;
  }
  return {};
}

std::optional<int> rank_in(const std::string& environment) {
  for (const char* name : kRankVariables) {
    if (const auto rank = variable_in(environment, name)) return std::atoi(rank->c_str());
  }
  return {};
}

bool is_below(pid_t number, pid_t ancestor) {
  for (int depth = 0; number > 1 && depth < 32; ++depth) {
    if (number == ancestor) return true;
    number = read_process(number).parent;
  }
  return false;
}

}  // namespace

bool JobMark::fits(pid_t process, const std::string& environment) const {
  if (!variable.empty()) return variable_in(environment, variable) == value;
  return launcher > 0 && is_below(process, launcher);
}

std::string JobMark::name() const {
  const std::string start = launcher > 0 ? fmt::format("-{}", read_process(launcher).start) : "";
  return fmt::format("{}-{}-{}{}", ::getuid(), value, launcher, start);
}

JobMark mark_of_this_job() {
  JobMark mark;
  for (const char* name : kJobVariables) {
    const char* value = std::getenv(name);
    if (value == nullptr) continue;
    mark.variable = name;
    mark.value = value;
    return mark;
  }
  const std::vector<ProcessMark> launchers = launchers_above();
  if (!launchers.empty()) mark.launcher = launchers.back().number;
  return mark;
}

std::vector<RankProcess> find_rank_processes(const JobMark& mark, int own_rank,
                                             const std::function<bool(pid_t)>& is_known) {
  std::vector<RankProcess> found;
  std::error_code error;
  std::filesystem::directory_iterator entry("/proc", error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const auto process = static_cast<pid_t>(std::atoi(entry->path().filename().c_str()));
    if (process <= 0 || process == ::getpid() || is_known(process)) continue;
    const std::string environment = read_process_file(process, "environ");
    const std::optional<int> rank = rank_in(environment);
    if (!rank || *rank == own_rank || !mark.fits(process, environment)) continue;
    found.push_back({*rank, process, read_process(process).start});
  }
  return found;
}

std::vector<ProcessMark> other_ranks() {
  std::vector<ProcessMark> marks;
  const auto none = [](pid_t) { return false; };
  for (const RankProcess& each :
       find_rank_processes(mark_of_this_job(), launch_place().rank, none)) {
    marks.push_back({each.process, each.start});
  }
  return marks;
}

std::string host_of_this_process() {
  std::array<char, 256> name = {};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

bool is_of_this_host(pid_t process) {
  std::error_code error;
  const auto own = std::filesystem::read_symlink("/proc/self/ns/uts", error);
  return own == std::filesystem::read_symlink(fmt::format("/proc/{}/ns/uts", process), error);
}

}  // namespace millrace::comm
