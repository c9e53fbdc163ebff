// The trace of a whole job.
#pragma once

#include <filesystem>

#include "runtime/trace.h"
#include "train/engine.h"

namespace millrace::train {

// Records what the devices of this process do. Made before the engine is started, which borrows it;
// lives longer than the engine. Used by the loop's thread.
class JobTrace {
 public:
  explicit JobTrace(Engine& engine);

  // One file for the whole job; clocks of processes on one host are the same. Called by all
  // processes, the first one writes.
  void save(const std::filesystem::path& path, Engine& engine) const;

 private:
  runtime::TraceRecorder recorder_;
};

}  // namespace millrace::train
