// A device: a thread that owns a team of pinned threads, and an arena.
//
// Everything that touches the arena runs on the device's own thread through `run`, one call at
// a time; an exception thrown there is rethrown to the caller. The arena is one anonymous
// mapping, filled with zeros, of exactly the size asked for.
#pragma once

#include <cstddef>
#include <cstdint>
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

  // Maps the arena, dropping an earlier one.
  void allocate(int64_t bytes);
  std::byte* arena() const;
  int64_t arena_bytes() const;

  // Bytes of the arena that were ever touched, in whole pages.
  int64_t resident_bytes() const;

  // Runs `work` on the device thread and waits for it.
  void run(const std::function<void()>& work);

  int threads() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace
