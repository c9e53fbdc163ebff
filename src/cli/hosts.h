// Starting a job on several hosts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace millrace::cli {

struct HostRanks {
  std::string name;
  int ranks = 1;

  bool operator==(const HostRanks&) const = default;
};

// "a:2,b" as two ranks on a and one on b, and back. Throws InputError for a list that names no
// hosts.
std::vector<HostRanks> parse_hosts(std::string_view hosts);
std::string hosts_text(const std::vector<HostRanks>& hosts);

// How the launcher of an MPI is called.
enum class LauncherKind : unsigned char { openmpi, mpich };

struct LauncherSettings {
  LauncherKind kind = LauncherKind::openmpi;
  bool root = false;                   // Open MPI wants to be told
  std::vector<std::string> variables;  // of the environment, to be passed on
};

// The command line that starts `program` with `arguments` as ranks on the hosts, one on each or as
// many as "host:2" says. `--hosts` and its value are left out of the arguments. Throws InputError
// for a list that names no hosts.
std::vector<std::string> launcher_command(const std::string& hosts, const std::string& program,
                                          const std::vector<std::string>& arguments,
                                          const LauncherSettings& settings);

// The launcher of the MPI whose plug-in is there. Throws InputError without one.
LauncherSettings launcher_here();

// Becomes the launcher of a command; Debian's name of it, or the one without the family. Returns,
// with errno set, only if there is none.
void become_launcher(std::vector<std::string>& command);

// Becomes the launcher that starts this very program again on the hosts, with the arguments it was
// started with; a list that a file of flags gave is taken back. Throws InputError if there is no
// launcher or this is a rank already.
[[noreturn]] void start_on_hosts(const std::string& hosts);

}  // namespace millrace::cli
