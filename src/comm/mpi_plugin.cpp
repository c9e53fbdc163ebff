#include "comm/mpi_plugin.h"

#include <dlfcn.h>
#include <signal.h>
#include <sys/resource.h>

#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/version.h"

namespace millrace::comm {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> plugin_directories() {
  std::vector<fs::path> directories;
  if (const char* named = std::getenv("MILLRACE_PLUGINS")) directories.emplace_back(named);
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (!error) {
    directories.push_back(program.parent_path());
    directories.push_back(program.parent_path().parent_path() / "lib" / "millrace");
  }
  return directories;
}

fs::path find_plugin(MpiFamily family) {
  const std::string file = fmt::format("libmillrace_{}.so", name_of(family));
  for (const fs::path& directory : plugin_directories()) {
    std::error_code error;
    if (fs::exists(directory / file, error)) return directory / file;
  }
  return {};
}

const char* title_of(MpiFamily family) {
  return family == MpiFamily::openmpi ? "Open MPI" : "MPICH";
}

const char* package_of(MpiFamily family) {
  return family == MpiFamily::openmpi ? "libopenmpi3" : "libmpich12";
}

// Libraries print the stack of a rank that crashes from within it, which may take long or never
// end: then nobody hears of the crash. The rank's witness tells of it. Whoever has set these wants
// what they say.
void leave_crashes_to_the_system() {
  ::setenv("OMPI_MCA_opal_signal", "", 0);
  ::setenv("UCX_HANDLE_ERRORS", "none", 0);
}

// Libraries write to the sockets of ranks that have just ended, which is no reason to end too.
void outlive_closed_sockets() { ::signal(SIGPIPE, SIG_IGN); }

// Segments also cannot be mapped from file systems that hold no programs.
bool is_lack_of_memory(const std::string& reason) {
  rlimit limit = {};
  ::getrlimit(RLIMIT_AS, &limit);
  return reason.find("llocate memory") != std::string::npos ||
         (reason.find("map segment") != std::string::npos && limit.rlim_cur != RLIM_INFINITY);
}

}  // namespace

bool has_mpi_plugin(MpiFamily family) { return !find_plugin(family).empty(); }

std::unique_ptr<MpiModule> open_mpi_plugin(MpiFamily family) {
  const fs::path path = find_plugin(family);
  if (path.empty()) {
    fail_input(
        "A launcher of {} started this program, but its plug-in libmillrace_{}.so is not beside "
        "the program; build Millrace where {} is installed, or use a launcher that has a plug-in.",
        title_of(family), name_of(family), title_of(family));
  }
  leave_crashes_to_the_system();
  outlive_closed_sockets();
  // Open MPI's own modules look for its symbols among those of the process.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    const std::string reason = dlerror();
    if (is_lack_of_memory(reason)) throw std::bad_alloc();
    fail_input("The plug-in '{}' cannot be opened ({}); is {} (package {}) installed?",
               path.string(), reason, title_of(family), package_of(family));
  }
  const auto make = reinterpret_cast<MpiModuleFunction>(dlsym(library, kMpiModuleFunction));
  MpiModule* module = make == nullptr ? nullptr : make(std::string(kVersion).c_str());
  if (module == nullptr) {
    fail_input("The plug-in '{}' is not of this program's version, {}; install both together.",
               path.string(), kVersion);
  }
  return std::unique_ptr<MpiModule>(module);
}

}  // namespace millrace::comm
