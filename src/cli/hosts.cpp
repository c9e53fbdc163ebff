#include "cli/hosts.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "base/error.h"
#include "base/text.h"
#include "cli/arguments.h"
#include "comm/launcher.h"
#include "comm/mpi_plugin.h"

namespace millrace::cli {
namespace {

constexpr std::string_view kFlag = "--hosts";
constexpr int kMostRanks = 4096;

// One entry of the list: "host" or "host:2".
HostRanks parse_host(std::string_view entry) {
  const size_t colon = entry.find(':');
  const std::string_view name = entry.substr(0, colon);
  const bool good_name = !name.empty() && std::all_of(name.begin(), name.end(), [](char letter) {
    return std::isalnum(static_cast<unsigned char>(letter)) || letter == '.' || letter == '-' ||
           letter == '_';
  });
  int ranks = 1;
  bool good_count = true;
  if (colon != std::string_view::npos) {
    const std::string_view count = entry.substr(colon + 1);
    const char* end = count.data() + count.size();
    const auto [stopped, error] = std::from_chars(count.data(), end, ranks);
    good_count = error == std::errc() && stopped == end && ranks >= 1 && ranks <= kMostRanks;
  }
  if (!good_name || name.front() == '-' || !good_count) {
    fail_input("--hosts has the entry '{}'; write host names as a,b or, for two ranks on a, a:2,b.",
               entry);
  }
  return {std::string(name), ranks};
}

int count_ranks(const std::vector<HostRanks>& hosts) {
  int ranks = 0;
  for (const HostRanks& host : hosts) ranks += host.ranks;
  return ranks;
}

// Settings of ours and of OpenMP that a remote shell would not bring along.
std::vector<std::string> variables_to_pass() {
  std::vector<std::string> names;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (text.starts_with("OMP_") || text.starts_with("MILLRACE_")) {
      names.emplace_back(text.substr(0, text.find('=')));
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

std::vector<HostRanks> parse_hosts(std::string_view hosts) {
  std::vector<HostRanks> list;
  for (const std::string& entry : split(hosts, ',')) {
    list.push_back(parse_host(entry));
    if (count_ranks(list) > kMostRanks) {
      fail_input("--hosts asks for more than {} ranks.", kMostRanks);
    }
  }
  return list;
}

std::string hosts_text(const std::vector<HostRanks>& hosts) {
  std::string text;
  for (const HostRanks& host : hosts) {
    text += fmt::format("{}{}:{}", text.empty() ? "" : ",", host.name, host.ranks);
  }
  return text;
}

std::vector<std::string> launcher_command(const std::string& hosts, const std::string& program,
                                          const std::vector<std::string>& arguments,
                                          const LauncherSettings& settings) {
  const std::string ranks = std::to_string(count_ranks(parse_hosts(hosts)));
  std::vector<std::string> command;
  if (settings.kind == LauncherKind::openmpi) {
    command = {"mpirun.openmpi", "--host", hosts, "-n", ranks, "--bind-to", "none"};
    if (settings.root) command.emplace_back("--allow-run-as-root");
    for (const std::string& variable : settings.variables) {
      command.insert(command.end(), {"-x", variable});
    }
  } else {
    command = {"mpiexec.mpich", "-hosts", hosts, "-n", ranks};
  }
  command.push_back(program);
  const std::vector<std::string> rest = without_flag(arguments, kFlag);
  command.insert(command.end(), rest.begin(), rest.end());
  return command;
}

LauncherSettings launcher_here() {
  const bool openmpi = comm::has_mpi_plugin(comm::MpiFamily::openmpi);
  if (!openmpi && !comm::has_mpi_plugin(comm::MpiFamily::mpich)) {
    fail_input(
        "--hosts needs the plug-in of an MPI, libmillrace_openmpi.so or libmillrace_mpich.so, "
        "beside the program; build Millrace where Open MPI or MPICH is installed.");
  }
  LauncherSettings settings;
  settings.kind = openmpi ? LauncherKind::openmpi : LauncherKind::mpich;
  settings.root = ::geteuid() == 0;
  settings.variables = variables_to_pass();
  return settings;
}

void become_launcher(std::vector<std::string>& command) {
  std::vector<char*> words;
  words.reserve(command.size() + 1);
  for (std::string& word : command) words.push_back(word.data());
  words.push_back(nullptr);
  ::execvp(words[0], words.data());
  words[0] = command[0].replace(command[0].find('.'), std::string::npos, "").data();
  ::execvp(words[0], words.data());
}

void start_on_hosts(const std::string& hosts) {
  if (comm::launched_ranks() > 1) {
    fail_input("--hosts starts the ranks itself; leave it out under mpirun.");
  }
  const LauncherSettings settings = launcher_here();
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::vector<std::string> arguments = own_arguments();
  std::vector<std::string> command = launcher_command(hosts, program, arguments, settings);
  if (!names_flag(arguments, kFlag)) command.insert(command.end(), {std::string(kFlag), ""});
  become_launcher(command);
  fail_input("--hosts cannot start {}: {}; install {}.", command[0], std::strerror(errno),
             settings.kind == LauncherKind::openmpi ? "openmpi-bin" : "mpich");
}

}  // namespace millrace::cli
