// A communicator whose waits can end: by a failure anywhere in the group or by a deadline.
#pragma once

#include <mpi.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "comm/transport.h"

namespace millrace::comm {

// Throws JobError if `code` says that MPI could not join ranks, after a few seconds: another rank
// has often been lost just then, and whoever knows tells that first.
void expect_joined(int code);

// Transfers of one member under way. Each has the member at its other end and the bytes it must
// bring, -1 for a send.
struct MpiTransfers {
  int member = 0;  // whose they are
  std::vector<MPI_Request> requests = {};
  std::vector<int> peers = {};
  std::vector<int64_t> expected = {};
  void clear();
  // Cancels what is still under way, for when the group has failed, and waits for it to end.
  void abandon(std::chrono::steady_clock::time_point patience);
};

// This process's end of a group; the members that live here share it. Owns its communicator, which
// joins the processes; messages between two members carry the pair in their tag. Safe from several
// threads at once; each brings its own MpiTransfers. Messages longer than MPI can count are cut
// into pieces. After a failure the caller abandons its transfers, and the group is of no more use.
class MpiEndpoint {
 public:
  static constexpr int kLargestTag = 16400;

  // `ranks` gives each member's rank in the communicator.
  MpiEndpoint(MPI_Comm communicator, std::vector<std::string> names, std::vector<int> ranks);
  ~MpiEndpoint();
  MpiEndpoint(const MpiEndpoint&) = delete;
  MpiEndpoint& operator=(const MpiEndpoint&) = delete;

  int size() const { return static_cast<int>(names_.size()); }
  const std::string& name(int member) const { return names_[static_cast<size_t>(member)]; }

  // Throws the group's failure, if there is one.
  void check();
  // From or to the member whose transfers they are. Tags run from 1 to kLargestTag.
  void start_send(MpiTransfers& transfers, int to, const void* data, int64_t bytes, int tag);
  void start_receive(MpiTransfers& transfers, int from, void* data, int64_t bytes, int tag);
  // Waits for all and clears them; returns the seconds waited. A deadline of 0 is none.
  double finish(MpiTransfers& transfers, Operation operation, double deadline);

  void stop(const std::string& sentence) { set_failure(sentence, true); }

 private:
  int test(MpiTransfers& transfers, Operation operation);
  void check_received(const MpiTransfers& transfers, int index, const MPI_Status& status,
                      Operation operation);
  int tag_between(int from, int to, int tag) const;
  void listen();
  [[noreturn]] void fail_all(const std::string& sentence);
  void set_failure(const std::string& sentence, bool tell);
  void expect_success(int code, int member, const char* what);
  std::string unfinished_peers(const MpiTransfers& transfers) const;

  MPI_Comm communicator_;
  const std::vector<std::string> names_;
  const std::vector<int> ranks_;
  std::vector<int> lanes_;  // each member's number among those of its rank
  int lane_count_ = 1;
  int processes_ = 1;
  int process_ = 0;
  std::atomic<bool> failed_ = false;
  std::mutex mutex_;
  std::string failure_;
  std::vector<MPI_Request> farewells_;  // send failure_ to the others
};

}  // namespace millrace::comm
