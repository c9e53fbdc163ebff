#include "backend/device.h"

#include <unistd.h>

#include <optional>
#include <utility>

#include "backend/cpu/cores.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/crowding.h"
#include "base/parallel.h"
#include "base/task_thread.h"

namespace millrace::backend {

class Device::Impl {
 public:
  explicit Impl(const DeviceOptions& options)
      : threads_(options.threads),
        backend_(options.backend ? options.backend : make_cpu_backend()) {
    pid_t id = 0;
    thread_.start([&] {
      id = ::gettid();
      set_team_size(options.threads);
      if (!options.cores.empty()) keep_to(options.cores);  // and with it the team, which it starts
    });
    thread_.finish();
    if (options.threads > 1) watch_.emplace(id);  // from here, where all cores may be used
  }

  TaskThread& thread() { return thread_; }
  int threads() const { return threads_; }
  Backend& backend() { return *backend_; }

 private:
  const int threads_;
  const std::shared_ptr<Backend> backend_;
  TaskThread thread_{end_team};      // what it runs uses everything above
  std::optional<CrowdWatch> watch_;  // of that thread
};

Device::Device(const DeviceOptions& options) : impl_(std::make_unique<Impl>(options)) {}
Device::~Device() = default;
void Device::run(const std::function<void()>& work) { impl_->thread().run(work); }
void Device::start(std::function<void()> work) { impl_->thread().start(std::move(work)); }
void Device::finish() { impl_->thread().finish(); }
int Device::threads() const { return impl_->threads(); }

std::unique_ptr<Region> Device::allocate(int64_t bytes) { return impl_->backend().allocate(bytes); }

std::unique_ptr<Stream> Device::make_stream(StreamKind kind, int background_threads) {
  return impl_->backend().make_stream(
      {.kind = kind, .threads = kind == StreamKind::direct ? threads() : background_threads});
}

}  // namespace millrace::backend
