// Groups whose members are processes joined by MPI.
//
// MPI itself is in a plug-in, opened when a launcher of its family started this process beside
// others; a process alone is a job of one rank and opens none.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/beats.h"
#include "comm/group.h"

namespace millrace::comm {

class MpiModule;
class RankWatch;
class RankWitness;

// Starts MPI and ends it, where the launcher started several processes; `main` owns the only one,
// outlives every MPI group, and prints its errors before the session ends. All ranks must end their
// session: one that waits five seconds for the others ends the whole job, so that no process is
// left behind. While it is there it watches over the other ranks, and a witness over this one.
class MpiSession {
 public:
  // Says the sentence and ends the process, from any thread, where no exception can: MPI cannot be
  // interrupted while it joins processes. Without one, nothing but groups is ended.
  using LastWord = std::function<void(const std::string& sentence)>;

  explicit MpiSession(LastWord last_word = {});
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  // "rank 1 on host b".
  const std::string& name(int rank) const { return names_[static_cast<size_t>(rank)]; }

  // What joins the ranks, for example "Open MPI v4.1.4"; "none" for one rank without a launcher.
  std::string mpi_version() const;

  // The plug-in, or null for a process alone.
  MpiModule* module() const { return module_.get(); }

  // For a job that has failed and says so itself: the session then waits for the others only a
  // moment, ends them with this status, and its witness is silent. From any thread.
  void expect_no_answer(int status = 1);

  // The job has failed with this sentence: tells the listener, so that calls which wait throw it,
  // and has the last word when the process is stuck where MPI joins ranks, or nobody listens. From
  // any thread.
  void fail(const std::string& sentence);
  bool failed() const { return failed_; }

  // Calls something that MPI does for all ranks together, and that cannot be interrupted.
  template <typename Call>
  auto join(Call&& call) const {
    const Joining mark(*joining_);
    return call();
  }

  // What this rank is doing, should it end without a word. From any thread.
  void set_activity(const std::string& what);

  // ", in step 3", or that the job began; empty for a process alone.
  std::string doing() const;

  // Whether the other ranks notice when this one is stopped. From any thread.
  void set_heard(bool heard);

  // The beats that the ranks have exchanged since they were joined, for the first who asks; the
  // session ends them. Null for others, and without a last word.
  Beats* take_beats();

  // A signal has told this rank to end, which it is about to do. From any thread.
  void expect_end();

  // Who knows what a rank was doing; empty: nobody.
  void set_activities(std::function<std::string(int rank)> activities);

  // Who is told of a failure, also of one before, one at a time; empty: nobody.
  void set_listener(std::function<void(const std::string& sentence)> listener);

 private:
  struct Joining {
    explicit Joining(std::atomic<int>& count) : count_(count) { ++count_; }
    ~Joining() { --count_; }
    Joining(const Joining&) = delete;
    Joining& operator=(const Joining&) = delete;
    std::atomic<int>& count_;
  };

  void lose(int rank, const std::string& sentence);
  void end_beats();

  int rank_ = 0;
  int size_ = 1;
  std::vector<std::string> names_;
  std::unique_ptr<MpiModule> module_;
  std::atomic<int> status_ = 0;  // that this rank ends with, as far as it is known
  std::atomic<bool> failed_ = false;
  const std::shared_ptr<std::atomic<int>> joining_ = std::make_shared<std::atomic<int>>(0);
  LastWord last_word_;
  std::mutex mutex_;
  std::function<void(const std::string&)> listener_;
  std::string failure_;
  std::mutex activities_mutex_;
  std::function<std::string(int)> activities_;
  std::unique_ptr<RankWitness> witness_;
  std::unique_ptr<RankWatch> watch_;
  std::unique_ptr<Beats> beats_;
  bool has_given_beats_ = false;
};

// A group of the given ranks of the job in this order, the caller's among them; all of them call
// it with the same ranks and the same label, and calls at the same time have different labels.
// Any thread may use the group, and groups are independent of each other.
Group mpi_group(const MpiSession& session, const std::vector<int>& ranks, int label = 0);

// The members of a group, several of which may live in one rank.
struct MpiMembers {
  std::vector<int> ranks;          // of each member
  std::vector<std::string> names;  // as messages call them
  bool sums = true;                // without, the group takes no buffers and refuses sums
};

// One handle for each member of the calling rank, in the order of the members; called as
// `mpi_group` is. Members of one rank may not all be in one thread: each is a thread of its own.
std::vector<Group> mpi_groups(const MpiSession& session, const MpiMembers& members, int label = 0);

// A group of all ranks.
Group mpi_world(const MpiSession& session);

}  // namespace millrace::comm
