#include "backend/cpu/crowding.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <omp.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>

#include "base/parallel.h"
#include "base/task_thread.h"

namespace millrace::backend {
namespace {

constexpr double kMemory = 0.25;  // seconds
constexpr double kCrowd = 0.1;
constexpr double kCalm = 1.0 / 30;
constexpr std::chrono::milliseconds kInterval{20};

// The seconds for which a thread was ready to run and did not, as the kernel counts them.
class DelayFile {
 public:
  explicit DelayFile(pid_t thread)
      : file_(::open(fmt::format("/proc/self/task/{}/schedstat", thread).c_str(),
                     O_RDONLY | O_CLOEXEC)) {}
  ~DelayFile() {
    if (file_ >= 0) ::close(file_);
  }
  DelayFile(const DelayFile&) = delete;
  DelayFile& operator=(const DelayFile&) = delete;

  std::optional<double> seconds() const {
    std::array<char, 96> text = {};
    if (file_ < 0 || ::pread(file_, text.data(), text.size() - 1, 0) <= 0) return {};
    unsigned long long delayed = 0;
    if (std::sscanf(text.data(), "%*u %llu", &delayed) != 1) return {};
    return static_cast<double>(delayed) * 1e-9;
  }

 private:
  const int file_;
};

}  // namespace

bool CrowdRule::crowded_after(double interval, double delayed) {
  if (interval <= 0) return crowded_;
  lost_ = delayed / interval + (lost_ - delayed / interval) * std::exp(-interval / kMemory);
  crowded_ = lost_ > (crowded_ ? kCalm : kCrowd);
  return crowded_;
}

// libgomp counts threads of teams as long as the thread that made them lives.
class IdleTeam::Impl {
 public:
  Impl() {
    const int threads = omp_get_num_procs() + 1;
    maker_.run([threads] {
      set_team_size(threads);
      parallel_ranges(threads, 0, [](int, int64_t, int64_t) {});
    });
  }

 private:
  TaskThread maker_;
};

IdleTeam::IdleTeam() : impl_(std::make_unique<Impl>()) {}
IdleTeam::~IdleTeam() = default;

class CrowdWatch::Impl {
 public:
  explicit Impl(pid_t thread)
      : file_(thread), watcher_([this](const std::stop_token& stop) { watch(stop); }) {}

 private:
  using Clock = std::chrono::steady_clock;

  void watch(const std::stop_token& stop) {
    CrowdRule rule;
    std::optional<IdleTeam> idle;
    Clock::time_point then = Clock::now();
    std::optional<double> before = file_.seconds();
    std::unique_lock lock(mutex_);
    while (before) {
      stopped_.wait_for(lock, stop, kInterval, [] { return false; });
      if (stop.stop_requested()) return;
      const std::optional<double> delayed = file_.seconds();
      const Clock::time_point now = Clock::now();
      if (!delayed) return;
      const double interval = std::chrono::duration<double>(now - then).count();
      const bool crowded = rule.crowded_after(interval, *delayed - *before);
      if (crowded && !idle) idle.emplace();
      if (!crowded) idle.reset();
      before = delayed;
      then = now;
    }
  }

  const DelayFile file_;
  std::mutex mutex_;
  std::condition_variable_any stopped_;
  std::jthread watcher_;  // last: it uses everything above
};

CrowdWatch::CrowdWatch(pid_t thread) : impl_(std::make_unique<Impl>(thread)) {}
CrowdWatch::~CrowdWatch() = default;

}  // namespace millrace::backend
