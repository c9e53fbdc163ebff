// A kind of device.
#pragma once

#include <cstdint>
#include <memory>

#include "backend/region.h"
#include "backend/settings.h"
#include "backend/stream.h"

namespace millrace::backend {

enum class StreamKind : uint8_t {
  direct,      // where the device is this processor, the thread that gives a command runs it
  background,  // goes on beside the thread that gives commands
};

struct StreamOptions {
  StreamKind kind = StreamKind::direct;
  int threads = 1;  // of the team that runs its kernels, where that is not the caller's
};

// Gives memory and streams to devices, which share it. Safe from any thread.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::unique_ptr<Region> allocate(int64_t bytes) = 0;
  virtual std::unique_ptr<Stream> make_stream(const StreamOptions& options) = 0;
};

std::shared_ptr<Backend> make_backend(const BackendSettings& settings);

}  // namespace millrace::backend
