#include "runtime/device.h"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/parallel.h"
#include "base/text.h"

namespace millrace {
namespace {

std::vector<int> allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (::sched_getaffinity(0, sizeof(set), &set) == 0) {
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(core, &set)) cores.push_back(core);
    }
  }
  return cores;
}

void pin_to(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  ::pthread_setaffinity_np(::pthread_self(), sizeof(set), &set);
}

}  // namespace

class Device::Impl {
 public:
  explicit Impl(const DeviceOptions& options)
      : options_(options), cores_(allowed_cores()), thread_([this] { serve(); }) {
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
    const bool enough = options_.first_core + options_.threads <= static_cast<int>(cores_.size());
    if (!options_.pin || !enough) return;
    parallel_ranges(options_.threads, 0, [&](int, int64_t begin, int64_t) {
      pin_to(cores_[static_cast<size_t>(options_.first_core + begin)]);
    });
    pin_to(cores_[static_cast<size_t>(options_.first_core)]);
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

int available_cores() { return std::max<int>(1, static_cast<int>(allowed_cores().size())); }

}  // namespace millrace
