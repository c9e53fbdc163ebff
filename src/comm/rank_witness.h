// Tells what became of a rank that could not say it itself.
#pragma once

#include <sys/types.h>

#include <array>
#include <string>

#include "comm/job_processes.h"
#include "comm/launcher.h"

namespace millrace::comm {

// A small process beside a rank that waits for its end. A rank that a signal ended, or that a
// library ended, is named on standard error with its host, what it was doing and the signal; a
// launcher tells none of that, or ends all ranks before they can. Of the ranks of one host only the
// first is told: the launcher ends the others because of it. One that ended before it had a witness
// is told by another rank's. One that a signal has stopped while nobody on its host or elsewhere
// could notice, is told and ended with its launcher.
//
// The process has no part in the job: it has its own session, closes all but standard error and
// shows neither the arguments nor the variables of the rank.
class RankWitness {
 public:
  // Without processes or descriptors to spare there is no witness, which is no failure.
  RankWitness(const LaunchPlace& place, const JobMark& job);

  // The end of a rank about which nothing need be told; one that `be_silent` was called for keeps
  // the witnesses of the other ranks silent too.
  ~RankWitness();
  RankWitness(const RankWitness&) = delete;
  RankWitness& operator=(const RankWitness&) = delete;

  // What the rank is doing, for example "step 12". From any thread.
  void set_activity(const std::string& what);

  // A signal has told the rank to end. If SIGKILL follows, as launchers have it, that is the answer
  // to something else, and said as such. From any thread.
  void expect_end();

  // Whether other ranks notice when this one is stopped. From any thread.
  void set_heard(bool heard);

  // The rank has told, or is about to tell, its end itself. From any thread.
  void be_silent();

  std::string activity() const;

  // The witness process; 0 without one.
  pid_t process() const { return process_; }

 private:
  struct Page;

  Page* page_ = nullptr;  // shared with the witness
  pid_t process_ = 0;
  std::array<int, 2> signs_ = {-1, -1};  // closed when the rank ends, which the witness sees
};

}  // namespace millrace::comm
