// This processor as a device.
#pragma once

#include "backend/backend.h"

namespace millrace::backend {

// Direct streams run a command before `give` returns, in the calling thread with its team: there is
// no queue, and every event is over. Background streams have a thread and a queue.
std::shared_ptr<Backend> make_cpu_backend();

}  // namespace millrace::backend
