#include "comm/mpi_beats.h"

#include <fmt/format.h>
#include <mpi.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "base/error.h"
#include "comm/mpi_endpoint.h"

namespace millrace::comm {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

enum Kind : int { kBeat = 1, kFinished, kFailed };  // the tags of messages

constexpr auto kPoll = std::chrono::milliseconds(50);
constexpr auto kLastWordTime = std::chrono::seconds(1);
constexpr size_t kLongestText = 1000;
constexpr int kNewsHurry = 5;  // times as often when there is something new to tell

// A message on its way; the text stays until it has left.
struct Outgoing {
  std::string text;
  MPI_Request request = MPI_REQUEST_NULL;

  bool left() {
    int done = 0;
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    return done != 0;
  }
};

struct Peer {
  Clock::time_point heard;
  bool started = false;
  bool finished = false;
  std::string activity;
  Outgoing beat;
  Outgoing farewell;
};

class MpiBeats final : public Beats {
 public:
  MpiBeats(const MpiProcesses& processes, HeartbeatOptions options, MpiModule::OnFailure on_failure)
      : processes_(processes), options_(options), on_failure_(std::move(on_failure)) {
    expect_joined(MPI_Comm_dup(MPI_COMM_WORLD, &communicator_));
    MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN);
    peers_.resize(static_cast<size_t>(processes.size));
    for (Peer& peer : peers_) peer.heard = Clock::now();
    peers_[static_cast<size_t>(processes.rank)].finished = true;
    thread_ = std::thread([this] { serve(); });
  }

  ~MpiBeats() override {
    leave();
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    thread_.join();
    // Everybody's last word has come, so nothing can still be on its way.
    if (failure_.empty() && all_finished_) MPI_Comm_free(&communicator_);
  }

  void set_activity(const std::string& what) override {
    const std::lock_guard lock(mutex_);
    activity_ = what.substr(0, kLongestText);
    news_ = true;
  }

  std::string activity_of(int rank) override {
    const std::lock_guard lock(mutex_);
    return peers_[static_cast<size_t>(rank)].activity;
  }

  void fail(const std::string& reason) noexcept override {
    std::unique_lock lock(mutex_);
    if (!failure_.empty() || finished_) return;
    set_failure(fmt::format("{} failed: {}", own_name(), reason));
    changed_.wait_for(lock, kLastWordTime, [this] { return told_; });
  }

  void finish() override {
    std::unique_lock lock(mutex_);
    finished_ = true;
    changed_.wait(lock, [this] { return !failure_.empty() || all_finished_; });
    if (!failure_.empty()) throw JobError(failure_);
  }

  void leave() noexcept override {
    const std::lock_guard lock(mutex_);
    if (!failure_.empty() || finished_ || abandoned_) return;
    set_failure(fmt::format("{} left before the job was done.", own_name()));
  }

  void abandon() noexcept override {
    const std::lock_guard lock(mutex_);
    abandoned_ = true;
  }

 private:
  const std::string& name_of_rank(int rank) const {
    return processes_.names[static_cast<size_t>(rank)];
  }
  const std::string& own_name() const { return name_of_rank(processes_.rank); }

  // The loop of the thread. MPI is called without the mutex wherever it may take long.
  void serve() {
    Clock::time_point last_beat = Clock::now() - std::chrono::hours(1);
    Clock::time_point last_round = Clock::now();
    while (true) {
      listen();
      std::unique_lock lock(mutex_);
      if (abandoned_) return;
      const Clock::time_point now = Clock::now();
      // A process that was itself stopped for a while cannot judge the others.
      if (Seconds(now - last_round).count() > options_.silence / 4) forgive(now);
      last_round = now;
      if (failure_.empty()) look_for_silence(now);
      if (!failure_.empty()) {
        lock.unlock();
        say_farewell();
        return;
      }
      const double interval = news_ ? options_.interval / kNewsHurry : options_.interval;
      if (!finished_ && Seconds(now - last_beat).count() >= interval) {
        send_beats();
        news_ = false;
        last_beat = now;
      }
      if (finished_ && !all_finished_ && announce_finish()) {
        all_finished_ = true;
        changed_.notify_all();
      }
      if (all_finished_ && stopping_) return;
      lock.unlock();
      std::this_thread::sleep_for(kPoll);
    }
  }

  void listen() {
    while (true) {
      int found = 0;
      MPI_Message message = MPI_MESSAGE_NULL;
      MPI_Status status = {};
      MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, communicator_, &found, &message, &status);
      if (!found) return;
      int length = 0;
      MPI_Get_count(&status, MPI_CHAR, &length);
      std::string text(static_cast<size_t>(length), ' ');
      MPI_Mrecv(text.data(), length, MPI_CHAR, &message, MPI_STATUS_IGNORE);
      const std::lock_guard lock(mutex_);
      Peer& peer = peers_[static_cast<size_t>(status.MPI_SOURCE)];
      peer.heard = Clock::now();
      peer.started = true;
      if (status.MPI_TAG == kBeat) peer.activity = text;
      if (status.MPI_TAG == kFinished) peer.finished = true;
      if (status.MPI_TAG == kFailed && failure_.empty()) {
        told_ = true;  // by the one who failed
        set_failure(text);
      }
    }
  }

  void forgive(Clock::time_point now) {
    for (Peer& peer : peers_) peer.heard = now;
  }

  void look_for_silence(Clock::time_point now) {
    for (size_t rank = 0; rank < peers_.size(); ++rank) {
      const Peer& peer = peers_[rank];
      const double limit = peer.started ? options_.silence : options_.start;
      if (peer.finished || Seconds(now - peer.heard).count() <= limit) continue;
      set_failure(fmt::format("{} has not been heard of for {:g} seconds{}.",
                              name_of_rank(static_cast<int>(rank)), limit,
                              peer.activity.empty() ? "" : "; it was last in " + peer.activity));
      return;
    }
  }

  // A beat that has not left is not followed by another.
  void send_beats() {
    for (size_t rank = 0; rank < peers_.size(); ++rank) {
      Outgoing& beat = peers_[rank].beat;
      if (static_cast<int>(rank) == processes_.rank || !beat.left()) continue;
      beat.text = activity_;
      start(beat, static_cast<int>(rank), kBeat);
    }
  }

  // Says so once, as the last word of this rank; true when all have.
  bool announce_finish() {
    bool complete = true;
    for (size_t rank = 0; rank < peers_.size(); ++rank) {
      Peer& peer = peers_[rank];
      if (static_cast<int>(rank) == processes_.rank) continue;
      if (!announced_) start(peer.farewell, static_cast<int>(rank), kFinished);
      complete = complete && peer.finished && peer.farewell.left() && peer.beat.left();
    }
    announced_ = true;
    return complete;
  }

  void start(Outgoing& outgoing, int rank, Kind kind) {
    MPI_Isend(outgoing.text.data(), static_cast<int>(outgoing.text.size()), MPI_CHAR, rank, kind,
              communicator_, &outgoing.request);
  }

  void set_failure(const std::string& sentence) {
    failure_ = sentence.substr(0, kLongestText);
    on_failure_(failure_);
    changed_.notify_all();
  }

  // Passes the failure on, unless it came from another rank.
  void say_farewell() {
    const Clock::time_point begin = Clock::now();
    if (!told_) {
      for (size_t rank = 0; rank < peers_.size(); ++rank) {
        if (static_cast<int>(rank) == processes_.rank) continue;
        peers_[rank].farewell.text = failure_;
        start(peers_[rank].farewell, static_cast<int>(rank), kFailed);
      }
      for (Peer& peer : peers_) {
        while (!peer.farewell.left() && Clock::now() - begin < kLastWordTime) {
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
      }
    }
    const std::lock_guard lock(mutex_);
    told_ = true;
    changed_.notify_all();
  }

  const MpiProcesses processes_;
  const HeartbeatOptions options_;
  const MpiModule::OnFailure on_failure_;
  MPI_Comm communicator_ = MPI_COMM_NULL;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Peer> peers_;
  std::string activity_;
  bool news_ = false;  // an activity that the others do not know
  std::string failure_;
  bool told_ = false;  // the others know of the failure
  bool announced_ = false;
  bool finished_ = false;
  bool all_finished_ = false;
  bool stopping_ = false;
  bool abandoned_ = false;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<Beats> make_mpi_beats(const MpiProcesses& processes, HeartbeatOptions options,
                                      MpiModule::OnFailure on_failure) {
  return std::make_unique<MpiBeats>(processes, options, std::move(on_failure));
}

}  // namespace millrace::comm
