#include "runtime/device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/parallel.h"
#include "base/text.h"
#include "runtime/cores.h"

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
      : options_(options), cores_(cores_for(options)), thread_([this] { serve(); }) {
    try {
      run([this] { prepare_team(); });
    } catch (...) {
      stop();
      throw;
    }
  }

  ~Impl() {
    stop();
    if (arena_ != nullptr) ::munmap(arena_, static_cast<size_t>(mapped_));
  }

  void run(const std::function<void()>& work) {
    std::unique_lock lock(mutex_);
    work_ = &work;
    changed_.notify_all();
    changed_.wait(lock, [this] { return work_ == nullptr; });
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

  void allocate(int64_t bytes) {
    if (arena_ != nullptr) ::munmap(arena_, static_cast<size_t>(mapped_));
    const int64_t page = ::sysconf(_SC_PAGESIZE);
    mapped_ = std::max(page, (bytes + page - 1) / page * page);
    void* address = ::mmap(nullptr, static_cast<size_t>(mapped_), PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address == MAP_FAILED) {
      arena_ = nullptr;
      fail_job("The machine cannot give {} for a device's arena.",
               format_bytes(static_cast<uint64_t>(bytes)));
    }
    ::madvise(address, static_cast<size_t>(mapped_), MADV_HUGEPAGE);
    arena_ = static_cast<std::byte*>(address);
    bytes_ = bytes;
  }

  int64_t resident_bytes() const {
    if (arena_ == nullptr) return 0;
    const int64_t page = ::sysconf(_SC_PAGESIZE);
    std::vector<unsigned char> pages(static_cast<size_t>(mapped_ / page));
    if (::mincore(arena_, static_cast<size_t>(mapped_), pages.data()) != 0) return 0;
    int64_t count = 0;
    for (unsigned char state : pages) count += state & 1;
    return count * page;
  }

  std::byte* arena() const { return arena_; }
  int64_t arena_bytes() const { return bytes_; }
  int threads() const { return options_.threads; }

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
    if (!options_.pin || cores_.empty()) return;
    parallel_ranges(options_.threads, 0, [&](int, int64_t begin, int64_t) {
      keep_to({cores_[static_cast<size_t>(begin) % cores_.size()]});
    });
    keep_to({cores_.front()});
  }

  DeviceOptions options_;
  std::vector<int> cores_;
  std::byte* arena_ = nullptr;
  int64_t mapped_ = 0;
  int64_t bytes_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<void()>* work_ = nullptr;
  std::exception_ptr error_;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses everything above
};

Device::Device(const DeviceOptions& options) : impl_(std::make_unique<Impl>(options)) {}
Device::~Device() = default;
void Device::allocate(int64_t bytes) { impl_->allocate(bytes); }
std::byte* Device::arena() const { return impl_->arena(); }
int64_t Device::arena_bytes() const { return impl_->arena_bytes(); }
int64_t Device::resident_bytes() const { return impl_->resident_bytes(); }
void Device::run(const std::function<void()>& work) { impl_->run(work); }
int Device::threads() const { return impl_->threads(); }

}  // namespace millrace
