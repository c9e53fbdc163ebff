// Where the members of an in-process group meet.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "comm/transport.h"

namespace millrace::comm {

// What a member brings to a collective; the numbers must be the same for all.
struct LocalCall {
  Operation operation = Operation::barrier;
  int64_t count = 0;
  int64_t kind = 0;   // element type, item size or root
  int64_t block = 1;  // parts are whole blocks of this many elements
  const void* input = nullptr;
  void* output = nullptr;
};

// Shared by all members of a group, safe from any thread. `enter` returns to all members or throws
// to all of them; between `enter` and `leave` the calls of all members can be read. Waiting stops
// at a failure or at the deadline only where nobody can still be using the caller's buffers.
class LocalHub {
 public:
  explicit LocalHub(std::vector<std::string> names);

  int size() const { return static_cast<int>(names_.size()); }
  const std::string& name(int member) const { return names_[static_cast<size_t>(member)]; }
  const LocalCall& call(int member) const { return calls_[static_cast<size_t>(member)]; }

  // Both return the seconds waited; a deadline of 0 is none.
  double enter(int member, const LocalCall& call, double deadline);
  double leave();

  double send(int from, int to, const void* data, int64_t bytes, int tag, double deadline);
  double receive(int from, int to, void* data, int64_t bytes, int tag, double deadline);

  void stop(const std::string& sentence);

 private:
  enum class Progress : uint8_t { offered, taken, done };
  struct Message {
    const void* data;
    int64_t bytes;
    Progress progress = Progress::offered;
  };
  // Messages between two members with one tag; those who wait for another are not woken.
  struct Line {
    std::deque<Message*> messages;
    std::condition_variable changed;
  };
  using Address = std::tuple<int, int, int>;  // from, to, tag
  using Lock = std::unique_lock<std::mutex>;

  // Waits until ready, a failure or the deadline; false at the deadline.
  bool wait(Lock& lock, std::condition_variable& changed, double deadline,
            const std::function<bool()>& ready);
  void set_failure(std::string sentence);
  void throw_if_failed() const;
  std::string missing_members() const;

  const std::vector<std::string> names_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string failure_;
  std::vector<LocalCall> calls_;
  std::vector<bool> present_;
  int arrived_ = 0;
  int left_ = 0;
  int64_t entered_ = 0;
  int64_t completed_ = 0;
  std::map<Address, Line> lines_;
};

}  // namespace millrace::comm
