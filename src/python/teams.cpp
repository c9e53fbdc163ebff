#include "python/teams.h"

#include <dlfcn.h>
#include <link.h>
#include <omp.h>

#include <string_view>
#include <vector>

namespace millrace::python {
namespace {

struct OpenMp {
  decltype(&omp_pause_resource) pause;
  decltype(&omp_get_initial_device) device;
};

// Those that are loaded. Packages may bring more at any time, which the loader counts.
class LoadedOpenMps {
 public:
  const std::vector<OpenMp>& now() {
    LoadedOpenMps seen;
    ::dl_iterate_phdr(look, &seen);
    if (seen.loads_ != loads_) {
      loads_ = seen.loads_;
      found_.clear();
      for (const std::string_view name : seen.names_) add(name);
    }
    return found_;
  }

 private:
  static int look(dl_phdr_info* info, size_t, void* seen) {
    auto& all = *static_cast<LoadedOpenMps*>(seen);
    all.loads_ = info->dlpi_adds + info->dlpi_subs;
    const std::string_view path = info->dlpi_name;
    const std::string_view file = path.substr(path.rfind('/') + 1);
    for (const std::string_view name : {"libgomp", "libomp", "libiomp"}) {
      if (file.starts_with(name)) all.names_.emplace_back(path);
    }
    return 0;
  }

  void add(std::string_view path) {
    void* library = ::dlopen(path.data(), RTLD_NOLOAD | RTLD_LAZY);
    if (library == nullptr) return;
    const OpenMp one = {
        reinterpret_cast<decltype(OpenMp::pause)>(::dlsym(library, "omp_pause_resource")),
        reinterpret_cast<decltype(OpenMp::device)>(::dlsym(library, "omp_get_initial_device"))};
    if (one.pause != nullptr && one.device != nullptr) found_.push_back(one);
    ::dlclose(library);  // whoever loaded it keeps it
  }

  unsigned long long loads_ = 0;
  std::vector<std::string_view> names_;  // of the loader
  std::vector<OpenMp> found_;
};

}  // namespace

void end_teams() {
  thread_local LoadedOpenMps loaded;
  for (const OpenMp& one : loaded.now()) one.pause(omp_pause_soft, one.device());
}

}  // namespace millrace::python
