// A backend that makes the mistakes of a faulty executor.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <string_view>
#include <vector>

#include "backend/backend.h"

namespace millrace::testing {

// Streams are numbered in the order in which they are made.
struct Fault {
  enum class Kind : uint8_t {
    none,
    // `who` (kHost or a stream) waits for stream `whom`, and now
    no_wait,       // does not
    early_event,   // only until the command before the last one is over
    wrong_stream,  // lets another stream wait instead
    // Of what is given to stream `who`, the `whom`th
    lost_place,   // command is given to another stream
    early_reuse,  // write's host memory is used for something else at once
    // The `whom`th read or write of all is also made by the host, itself.
    host_reads,
    host_writes,
    // Kernels of stream `who` look at the step's values when they run.
    late_step,
  };
  static constexpr int kHost = -1;

  Kind kind = Kind::none;
  int who = 0;
  int whom = 0;

  auto operator<=>(const Fault&) const = default;
};

std::string_view name_of(Fault::Kind kind);

// For processes of their own, which it ends when the backend behind it sees a fault. Hands
// everything to that one, but for one fault. Keeps what it could have done wrong: all waits, and of
// the rest the first few places of each stream. A host's waits for background streams, which order
// nothing, are not among them.
class FaultyBackend : public backend::Backend {
 public:
  FaultyBackend(std::shared_ptr<backend::Backend> backend, Fault fault)
      : backend_(std::move(backend)), fault_(fault) {}

  std::unique_ptr<backend::Region> allocate(int64_t bytes) override {
    return backend_->allocate(bytes);
  }
  std::unique_ptr<backend::Stream> make_stream(const backend::StreamOptions& options) override;

  std::set<Fault> possible() const;

 private:
  class FaultyStream;

  // Whether it is the fault; notes it.
  bool asks(const Fault& fault);
  // Touches the device's memory if the fault says so.
  void touch(const backend::Command& command);
  // Any stream but these two.
  backend::Stream* other_stream(int one, int two);

  const std::shared_ptr<backend::Backend> backend_;
  const Fault fault_;
  mutable std::mutex mutex_;
  std::vector<backend::Stream*> streams_;  // null: it has ended
  std::atomic<int> reads_ = 0;
  std::atomic<int> writes_ = 0;
  std::set<Fault> possible_;
};

}  // namespace millrace::testing
