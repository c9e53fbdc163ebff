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
#include "base/random.h"

namespace millrace {

class StrictStream;

// What the streams of a backend share; everything is guarded by its mutex.
struct StrictHub {
  explicit StrictHub(const BackendSettings& chosen) : settings(chosen) {}

  uint64_t draw(uint64_t below);
  // The one that may run a kernel or copy next, drawn among those that could; null if none could.
  const StrictStream* next();

  const BackendSettings settings;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<StrictStream*> streams;
  const StrictStream* drawn = nullptr;  // by `next`, until it starts
  int running = 0;                      // kernels and copies: none or one
  int talking = 0;                      // commands that talk to other devices and run
  uint64_t draws = 0;
};

// Owns a thread, which runs the commands.
class StrictStream final : public Stream, private Timeline {
 public:
  // A team of so many threads; 0: as many as any thread has.
  StrictStream(std::shared_ptr<StrictHub> hub, int threads);
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

  void want(int64_t number);
  // Whether the first command of the queue is wanted and its event is over; wants what it lacks.
  bool is_ready();
  // Wants the next command that talks to other devices.
  void want_talk();
  bool may_start();
  void serve(int threads);
  void run_first(Lock& lock);
  void run(const Entry& entry);
  void fail(std::exception_ptr error);
  // Null for one that has ended, with all that it was given.
  StrictStream* stream_of(const Event& event) const;

  enum class Temper : uint8_t { late, eager, moody };

  const std::shared_ptr<StrictHub> hub_;
  Temper temper_ = Temper::late;
  std::deque<Entry> queue_;
  int64_t given_ = 0;
  int64_t done_ = 0;
  int64_t wanted_ = 0;
  StreamFailure failure_;
  double seconds_communicating_ = 0;
  StreamObserver* observer_ = nullptr;
  bool stopping_ = false;
  CommandRunner runner_;
  std::thread thread_;  // last: it uses everything above
};

}  // namespace millrace
