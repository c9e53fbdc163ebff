// In which order the ranks of a job on one host end.
#pragma once

#include <sys/types.h>

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/job_processes.h"
#include "comm/launcher.h"

namespace millrace::comm {

// What a rank leaves behind when it ends, however that happens: two pipes whose write ends it has,
// one with a low number and one with a high one. The system closes the files of a process that ends
// in order of their numbers, up or down; so one of the two is closed before what its launcher hears
// of it by, and before another process can be ended because of it.
struct RankSigns {
  std::array<int, 2> read = {-1, -1};
  std::array<int, 2> write = {-1, -1};
};

RankSigns make_rank_signs();

// Of each rank on the host there is one, in the process that witnesses it; they hand each other the
// read ends of the signs, by datagrams on names that begin with the job's. The kernel queues what
// happens to these in order, so that a witness that gets to run late still knows whether its own
// rank was the first: a launcher ends the others within a millisecond.
//
// What others send counts only if the same user sent it. Ranks that have no witness yet are looked
// for in /proc: one that ends before its first line takes all others with it, too. The end of such
// a process is heard of later than that of a witnessed one, so the order of the two may stay
// unknown.
class RankEnds {
 public:
  struct Rival {
    int rank = -1;      // -1 if it is not known which
    pid_t process = 0;  // 0 if it was never seen
    int handle = -1;    // of the process; the RankEnds' own
    bool has_witness = false;
  };

  struct Ends {
    bool own_is_first = true;
    std::optional<Rival> first;  // of all, if it had no witness that could tell
    // Those that may have ended before the own rank. One with a witness ended just after it, as far
    // as its files tell: its memory may have been gone before.
    std::vector<Rival> rivals;
    bool other_may_tell = false;  // a witnessed rank may have ended before, and its witness knows
  };

  // Of the process `rank`, with the read ends of its signs; borrowed.
  RankEnds(const LaunchPlace& place, const JobMark& job, pid_t rank,
           const std::array<int, 2>& signs);
  ~RankEnds();
  RankEnds(const RankEnds&) = delete;
  RankEnds& operator=(const RankEnds&) = delete;

  // Waits until the rank ends, and a moment longer; whether none of the others had failed before. A
  // rank whose witness has ended before it has ended in order; one without a witness may have.
  // Meanwhile `check` is called every tenth of a second, until it returns false. There is no such
  // moment if `may_be_answer` says, when the rank has ended, that nothing else can be the cause.
  Ends wait(std::function<bool()> check, const std::function<bool()>& may_be_answer);

  // Waits until the other ranks and their witnesses have ended, or so many milliseconds if they
  // have not, or if some were never seen.
  void wait_for_others(int milliseconds);

 private:
  struct Other;

  void watch(int descriptor, void* what) const;
  void tell(int local_rank, bool wants_answer) const;
  void hear();
  void look();
  void attend(const std::function<bool()>&
                  may_be_answer);  // to what happens until the rank ends, and behind that
  void note_end(const Other& other);
  void note_early_end(const Other& other);  // before its letter was read
  void add_unseen();
  bool all_known() const;
  bool is_searching() const;
  int patience() const;  // milliseconds until the next look

  const LaunchPlace place_;
  const JobMark mark_;
  const std::string job_;
  const pid_t rank_;
  const std::array<int, 2> signs_;
  int events_ = -1;
  int socket_ = -1;
  int looks_ = 0;
  std::function<bool()> check_;  // empty once it is not wanted any more
  bool has_ended_ = false;
  bool settles_ = false;  // what else happens just now is waited for
  Ends ends_;
  std::vector<std::unique_ptr<Other>> others_;
};

}  // namespace millrace::comm
