// Watches over the ranks of a job from outside of MPI.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "comm/launcher.h"

namespace millrace::comm {

struct RankWatchOptions {
  double stopped = 3;  // seconds after which a rank that a signal stopped counts as lost
  double gone = 0.5;   // after which one whose process has ended does, so that it may say why
  double joining = 6;  // in which MPI must have joined the ranks, besides waiting for cores
};

// MPI cannot be interrupted while it joins processes, so a rank that is stopped meanwhile, or a
// host that cannot be reached, would hang all others. This watch looks at the other ranks of this
// machine in /proc, from before MPI starts to the end of the job (`set_ending`), and at the clock
// until `set_joined`. It calls `on_lost` once, from its own thread, with the rank, -1 if it is not
// known which, and a sentence that names it, without the full stop.
class RankWatch {
 public:
  RankWatch(const LaunchPlace& place, std::function<void(int, const std::string&)> on_lost,
            RankWatchOptions options = {});
  ~RankWatch();
  RankWatch(const RankWatch&) = delete;
  RankWatch& operator=(const RankWatch&) = delete;

  // MPI has joined the ranks.
  void set_joined();

  // From now on the other ranks may end.
  void set_ending();

 private:
  void watch();

  const LaunchPlace place_;
  const std::function<void(int, const std::string&)> on_lost_;
  const RankWatchOptions options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool joined_ = false;
  bool ending_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace millrace::comm
