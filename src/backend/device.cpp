#include "backend/device.h"

#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "backend/cpu/cores.h"
#include "backend/cpu/cpu_backend.h"
#include "base/parallel.h"

namespace millrace {
namespace {

std::vector<int> cores_for(const DeviceOptions& options) {
  if (!options.pin || !options.cores.empty()) return options.cores;
  std::vector<int> cores = usable_cores();
  if (static_cast<int>(cores.size()) < options.threads) return {};
  cores.resize(static_cast<size_t>(options.threads));
  return cores;
}

}  // namespace

class Device::Impl {
 public:
  explicit Impl(const DeviceOptions& options)
      : options_(options),
        cores_(cores_for(options)),
        backend_(options.backend ? options.backend : make_cpu_backend()),
        thread_([this] { serve(); }) {
    try {
      start([this] { prepare_team(); });
      finish();
    } catch (...) {
      stop();
      throw;
    }
  }

  ~Impl() { stop(); }

  void run(const std::function<void()>& work) {
    const std::lock_guard lock(mutex_);
    work_ = &work;
    changed_.notify_all();
  }

  void start(std::function<void()> work) {
    started_ = std::move(work);
    run(started_);
  }

  void finish() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return work_ == nullptr; });
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

  int threads() const { return options_.threads; }
  Backend& backend() { return *backend_; }

 private:
  void serve() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return stopping_ || work_ != nullptr; });
      if (stopping_) return;
      const std::function<void()>* work = work_;
      lock.unlock();
      std::exception_ptr error;
      try {
        (*work)();
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      error_ = error;
      work_ = nullptr;
      changed_.notify_all();
    }
  }

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  void prepare_team() {
    set_team_size(options_.threads);
    if (options_.pin && !cores_.empty()) keep_to(cores_);  // and with it the team, which it starts
  }

  DeviceOptions options_;
  std::vector<int> cores_;
  std::shared_ptr<Backend> backend_;

  std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<void()>* work_ = nullptr;
  std::function<void()> started_;
  std::exception_ptr error_;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses everything above
};

Device::Device(const DeviceOptions& options) : impl_(std::make_unique<Impl>(options)) {}
Device::~Device() = default;
void Device::run(const std::function<void()>& work) {
  impl_->run(work);
  impl_->finish();
}
void Device::start(std::function<void()> work) { impl_->start(std::move(work)); }
void Device::finish() { impl_->finish(); }
int Device::threads() const { return impl_->threads(); }

std::unique_ptr<Region> Device::allocate(int64_t bytes) { return impl_->backend().allocate(bytes); }

std::unique_ptr<Stream> Device::make_stream(StreamKind kind, int background_threads) {
  return impl_->backend().make_stream(
      {.kind = kind, .threads = kind == StreamKind::direct ? threads() : background_threads});
}

}  // namespace millrace
