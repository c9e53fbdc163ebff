#include "cli/hosts.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>

#include "base/error.h"
#include "comm/launcher.h"
#include "comm/mpi_plugin.h"

namespace millrace {
namespace {

constexpr std::string_view kFlag = "--hosts";
constexpr int kMostRanks = 4096;

// The ranks that one entry of the list asks for: "host" or "host:2".
int ranks_of(std::string_view entry) {
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
  return ranks;
}

int count_ranks(std::string_view hosts) {
  int ranks = 0;
  while (true) {
    const size_t comma = hosts.find(',');
    ranks += ranks_of(hosts.substr(0, comma));
    if (ranks > kMostRanks) fail_input("--hosts asks for more than {} ranks.", kMostRanks);
    if (comma == std::string_view::npos) return ranks;
    hosts.remove_prefix(comma + 1);
  }
}

std::vector<std::string> without_hosts(const std::vector<std::string>& arguments) {
  std::vector<std::string> rest;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == kFlag) {
      ++i;
    } else if (!arguments[i].starts_with(std::string(kFlag) + "=")) {
      rest.push_back(arguments[i]);
    }
  }
  return rest;
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

std::vector<std::string> own_arguments() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> arguments;
  std::string argument;
  while (std::getline(file, argument, '\0')) arguments.push_back(argument);
  if (!arguments.empty()) arguments.erase(arguments.begin());
  return arguments;
}

std::vector<std::string> launcher_command(const std::string& hosts, const std::string& program,
                                          const std::vector<std::string>& arguments,
                                          const LauncherSettings& settings) {
  const std::string ranks = std::to_string(count_ranks(hosts));
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
  const std::vector<std::string> rest = without_hosts(arguments);
  command.insert(command.end(), rest.begin(), rest.end());
  return command;
}

void start_on_hosts(const std::string& hosts) {
  if (launched_ranks() > 1) {
    fail_input("--hosts starts the ranks itself; leave it out under mpirun.");
  }
  const bool openmpi = has_mpi_plugin(MpiFamily::openmpi);
  if (!openmpi && !has_mpi_plugin(MpiFamily::mpich)) {
    fail_input(
        "--hosts needs the plug-in of an MPI, libmillrace_openmpi.so or libmillrace_mpich.so, "
        "beside the program; build Millrace where Open MPI or MPICH is installed.");
  }
  LauncherSettings settings;
  settings.kind = openmpi ? LauncherKind::openmpi : LauncherKind::mpich;
  settings.root = ::geteuid() == 0;
  settings.variables = variables_to_pass();
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  std::vector<std::string> command = launcher_command(hosts, program, own_arguments(), settings);
  std::vector<char*> words;
  words.reserve(command.size() + 1);
  for (std::string& word : command) words.push_back(word.data());
  words.push_back(nullptr);
  ::execvp(words[0], words.data());
  words[0] = command[0].replace(command[0].find('.'), std::string::npos, "").data();
  ::execvp(words[0], words.data());
  fail_input("--hosts cannot start {}: {}; install {}.", command[0], std::strerror(errno),
             openmpi ? "openmpi-bin" : "mpich");
}

}  // namespace millrace
