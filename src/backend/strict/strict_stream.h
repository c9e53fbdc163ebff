// Queues that run late, at once or in random order.
//
// A command may start when it is wanted, the commands before it in its stream are over, and so is
// the event that it awaits. A command is wanted when someone waits for an event behind it, asks
// whether it is over, or needs it for something else that is wanted; with the order `eager` at
// once. With `random` each stream is drawn to be eager, late, or to run now and then, and which of
// several commands comes next is drawn, too. A bell is always wanted. While a command talks to
// other devices and nothing else can run, the next ones of all streams that do so are wanted: they
// may be what it waits for.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "backend/cpu/thread_stream.h"
#include "backend/settings.h"
#include "backend/strict/strict_ledger.h"
#include "base/random.h"

namespace millrace::backend {

class StrictStream;

// When a stream runs what nobody has asked for yet: never, at once, now and then.
enum class Temper : uint8_t { late, eager, moody };

// That of the stream made as the `number`th of its backend, from 0.
Temper temper_of(const BackendSettings& settings, uint64_t number);

// What the streams of a backend share; everything is guarded by its mutex.
struct StrictHub {
  explicit StrictHub(const BackendSettings& chosen) : settings(chosen) {}

  uint64_t draw(uint64_t below);
  // The one that may run a kernel or copy next, drawn among those that could; null if none could.
  const StrictStream* next();
  // Wakes the threads of the streams that can go on, and only these: a step has thousands of
  // commands. To be called whenever something has changed that a stream may wait for.
  void wake();

  const BackendSettings settings;
  std::mutex mutex;
  StrictLedger ledger;
  std::vector<StrictStream*> streams;
  const StrictStream* drawn = nullptr;  // by `next`, until it starts
  int running = 0;                      // kernels and copies: none or one
  int talking = 0;                      // commands that talk to other devices and run
  uint64_t draws = 0;
  bool waking = false;  // in `wake`, which may change what it has looked at already:
  bool again = false;
};

// Owns a thread, which runs the commands.
class StrictStream final : public Stream, private Timeline {
 public:
  // The `number`th of its hub, with a team of so many threads; 0: as many as any thread has.
  StrictStream(std::shared_ptr<StrictHub> hub, uint64_t number, int threads);
  ~StrictStream() override;

  void give(const Command& command, const CommandNote& note) override;
  Event record() override;
  void await(const Event& event) override;
  double seconds_communicating() const override;
  void set_observer(StreamObserver* observer) override;

 private:
  friend struct StrictHub;
  struct Entry {
    Entry(const Command& given, const CommandNote& about) : command(given), note(about) {}
    KeptCommand command;
    CommandNote note;
  };
  using Lock = std::unique_lock<std::mutex>;

  bool is_done(int64_t number) override;
  void wait(int64_t number) override;

  // Throws std::logic_error if the command may meet another one.
  void check(const Command& command);
  void want(int64_t number);
  // Whether the first command of the queue is wanted and its event is over; wants what it lacks.
  bool is_ready();
  // Wants the next command that talks to other devices.
  void want_talk();
  bool may_start();
  bool may_go_on() { return may_start() || (stopping_ && queue_.empty()); }
  void serve(int threads);
  void run_first(Lock& lock);
  void run(const Entry& entry);
  void fail(std::exception_ptr error);
  // Null for one that has ended, with all that it was given.
  StrictStream* stream_of(const Event& event) const;

  const std::shared_ptr<StrictHub> hub_;
  const uint64_t number_;
  const Temper temper_;
  std::deque<Entry> queue_;
  int64_t given_ = 0;
  int64_t done_ = 0;
  int64_t wanted_ = 0;
  StreamFailure failure_;
  double seconds_communicating_ = 0;
  StreamObserver* observer_ = nullptr;
  bool stopping_ = false;
  bool idle_ = false;              // its thread waits for `ready_`
  std::condition_variable ready_;  // it can go on
  std::condition_variable over_;   // a command is
  CommandRunner runner_;
  std::thread thread_;  // last: it uses everything above
};

}  // namespace millrace::backend
