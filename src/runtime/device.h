// A device: a thread that owns a team of pinned threads.
//
// Everything that touches the arenas of its sessions runs on the device's own thread through `run`,
// one call at a time; an exception thrown there is rethrown to the caller.
#pragma once

#include <functional>
#include <memory>
#include <vector>

namespace millrace {

struct DeviceOptions {
  int threads = 1;
  // The core of each thread; empty: the first `threads` that this process may use, or none in
  // particular if it has fewer.
  std::vector<int> cores = {};
  bool pin = true;
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

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace
