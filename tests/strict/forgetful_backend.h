// A backend that makes the mistakes of a faulty executor: it leaves out waits, or touches a
// device's memory from the host.
#pragma once

#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "backend/backend.h"

namespace millrace::testing {

// Who waits for which stream; streams are numbered in the order in which they are made.
struct Wait {
  static constexpr int kHost = -1;
  // Not waits: the host reads or writes for itself what the `whom`th such command of all would.
  static constexpr int kHostReads = -3;
  static constexpr int kHostWrites = -4;
  int who = kHost;
  int whom = 0;

  auto operator<=>(const Wait&) const = default;
};

// Hands everything to another backend but for the waits of one kind. Keeps which ones it was asked
// for; a host's waits for background streams, which order nothing, are not among them.
class ForgetfulBackend : public backend::Backend {
 public:
  ForgetfulBackend(std::shared_ptr<backend::Backend> backend, Wait forgotten)
      : backend_(std::move(backend)), forgotten_(forgotten) {}

  std::unique_ptr<backend::Region> allocate(int64_t bytes) override {
    return backend_->allocate(bytes);
  }
  std::unique_ptr<backend::Stream> make_stream(const backend::StreamOptions& options) override;

  std::set<Wait> asked() const;

 private:
  class ForgetfulStream;

  // Whether it is to be left out.
  bool ask(const Wait& wait);
  // Touches the device's memory if the fault says so.
  void touch(const backend::Command& command);

  const std::shared_ptr<backend::Backend> backend_;
  const Wait forgotten_;
  mutable std::mutex mutex_;
  int streams_ = 0;
  int reads_ = 0;
  int writes_ = 0;
  std::set<Wait> asked_;
};

}  // namespace millrace::testing
