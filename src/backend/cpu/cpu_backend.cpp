#include "backend/cpu/cpu_backend.h"

#include <chrono>

#include "backend/cpu/cpu_region.h"
#include "backend/cpu/thread_stream.h"

namespace millrace::backend {
namespace {

class DirectStream final : public Stream {
 public:
  void give(const Command& command, const CommandNote& note) override {
    if (observer_ == nullptr || note.subject == nullptr) return runner_.run(command);
    const int64_t begin = steady_now();
    runner_.run(command);
    observer_->ran(note, begin, steady_now());
  }
  Event record() override { return {}; }
  void await(const Event& event) override { event.wait(); }
  double seconds_communicating() const override { return 0; }
  void set_observer(StreamObserver* observer) override { observer_ = observer; }

 private:
  CommandRunner runner_;
  StreamObserver* observer_ = nullptr;
};

class CpuBackend final : public Backend {
 public:
  std::unique_ptr<Region> allocate(int64_t bytes) override {
    return std::make_unique<CpuRegion>(bytes);
  }
  std::unique_ptr<Stream> make_stream(const StreamOptions& options) override {
    if (options.kind == StreamKind::direct) return std::make_unique<DirectStream>();
    return std::make_unique<ThreadStream>(options.threads);
  }
};

}  // namespace

std::shared_ptr<Backend> make_cpu_backend() { return std::make_shared<CpuBackend>(); }

}  // namespace millrace::backend
