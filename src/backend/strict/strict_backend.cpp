#include "backend/strict/strict_backend.h"

#include <atomic>

#include "backend/strict/strict_region.h"
#include "backend/strict/strict_stream.h"

namespace millrace::backend {
namespace {

class StrictBackend final : public Backend {
 public:
  explicit StrictBackend(const BackendSettings& settings)
      : hub_(std::make_shared<StrictHub>(settings)) {}

  std::unique_ptr<Region> allocate(int64_t bytes) override {
    return std::make_unique<StrictRegion>(hub_, bytes);
  }
  std::unique_ptr<Stream> make_stream(const StreamOptions& options) override {
    return std::make_unique<StrictStream>(hub_, made_++, options.threads);
  }

 private:
  std::shared_ptr<StrictHub> hub_;
  std::atomic<uint64_t> made_ = 0;
};

}  // namespace

std::shared_ptr<Backend> make_strict_backend(const BackendSettings& settings) {
  return std::make_shared<StrictBackend>(settings);
}

}  // namespace millrace::backend
