// A device: a kind of memory and streams, and a thread of this process that drives it.
//
// Commands are given by the device's own thread through `run`, one call at a time; an exception
// thrown there is rethrown to the caller. Where the device is this processor, that thread owns a
// team that is kept to the device's cores, and what it gives to a direct stream it runs itself.
// Among these cores threads may move: beside a busy neighbour a team of fixed places waits for its
// slowest. A device that has nothing to do gives its team up (end_team).
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "backend/backend.h"

namespace millrace::backend {

struct DeviceOptions {
  int threads = 1;
  std::vector<int> cores = {};            // which the threads share; empty: all of this process
  std::shared_ptr<Backend> backend = {};  // null: this processor
};

class Device {
 public:
  explicit Device(const DeviceOptions& options);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // Runs `work` on the device thread and waits for it.
  void run(const std::function<void()>& work);

  // Runs `work` on the device thread without waiting; `finish` waits for it and rethrows its error.
  void start(std::function<void()> work);
  void finish();

  int threads() const;

  std::unique_ptr<Region> allocate(int64_t bytes);
  // A direct stream runs with the device's team, a background one with as many threads as given; 0:
  // as any thread has.
  std::unique_ptr<Stream> make_stream(StreamKind kind, int background_threads = 0);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace::backend
