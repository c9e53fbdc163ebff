#include "backend/backend.h"

#include "backend/cpu/cpu_backend.h"
#include "backend/strict/strict_backend.h"

namespace millrace::backend {

std::shared_ptr<Backend> make_backend(const BackendSettings& settings) {
  if (settings.kind == BackendSettings::Kind::cpu) return make_cpu_backend();
  return make_strict_backend(settings);
}

}  // namespace millrace::backend
