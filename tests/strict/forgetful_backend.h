// A backend that leaves out some of the waits that it is asked for, as a faulty executor would.
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
  int who = kHost;
  int whom = 0;

  auto operator<=>(const Wait&) const = default;
};

// Hands everything to another backend but for the waits of one kind. Keeps which ones it was asked
// for; a host's waits for background streams, which order nothing, are not among them.
class ForgetfulBackend : public Backend {
 public:
  ForgetfulBackend(std::shared_ptr<Backend> backend, Wait forgotten)
      : backend_(std::move(backend)), forgotten_(forgotten) {}

  std::unique_ptr<Region> allocate(int64_t bytes) override { return backend_->allocate(bytes); }
  std::unique_ptr<Stream> make_stream(const StreamOptions& options) override;

  std::set<Wait> asked() const;

 private:
  class ForgetfulStream;

  // Whether it is to be left out.
  bool ask(const Wait& wait);

  const std::shared_ptr<Backend> backend_;
  const Wait forgotten_;
  mutable std::mutex mutex_;
  int streams_ = 0;
  std::set<Wait> asked_;
};

}  // namespace millrace::testing
