// A device that forgives nothing, to try on this processor what must hold on any other.
#pragma once

#include "backend/backend.h"

namespace millrace::backend {

// The kernels are those of this processor, but nobody else can reach the memory, and every stream
// has a queue, which runs when the settings' order says. Kernels and copies of all its streams run
// one at a time, communication beside them.
std::shared_ptr<Backend> make_strict_backend(const BackendSettings& settings);

}  // namespace millrace::backend
