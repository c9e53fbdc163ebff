// In which order the ranks of a job on one host end.
#pragma once

#include <sys/types.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

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
// What others send counts only if the same user sent it. A rank that nobody has told of is not
// known.
class RankEnds {
 public:
  // Of the process `rank`, with the read ends of its signs; borrowed.
  RankEnds(const LaunchPlace& place, const std::string& job, pid_t rank,
           const std::array<int, 2>& signs);
  ~RankEnds();
  RankEnds(const RankEnds&) = delete;
  RankEnds& operator=(const RankEnds&) = delete;

  // Waits until the rank ends; whether none of the others had failed before. A rank whose witness
  // has ended before it has ended in order.
  bool wait_and_see_if_first();

 private:
  struct Other;

  void watch(int descriptor, void* what) const;
  void tell(int local_rank, bool wants_answer) const;
  void hear();

  const LaunchPlace place_;
  const std::string job_;
  const pid_t rank_;
  const std::array<int, 2> signs_;
  int events_ = -1;
  int socket_ = -1;
  bool others_failed_ = false;
  std::vector<std::unique_ptr<Other>> others_;
};

}  // namespace millrace::comm
