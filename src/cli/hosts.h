// Starting a job on several hosts.
#pragma once

#include <string>
#include <vector>

namespace millrace {

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

// The arguments that this process was started with, without the program's name.
std::vector<std::string> own_arguments();

// Becomes the launcher that starts this very program again on the hosts, with the arguments it was
// started with. Throws InputError if there is no launcher or this is a rank already.
[[noreturn]] void start_on_hosts(const std::string& hosts);

}  // namespace millrace
