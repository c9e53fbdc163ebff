// Messages between the stages of a simulated job.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "profile/simulation/item_writer.h"

namespace millrace::profile {

// Writes what devices do to send and receive, and the transfers between them. What is sent waits
// for one buffer of the sender's and for the receiver's slots. Borrows the writer.
class SimulatedMessages {
 public:
  explicit SimulatedMessages(ItemWriter& writer);

  // Micro-batches are counted from 0 again.
  void start_segment() { transfers_.clear(); }

  void receive(int worker, bool gradients, int64_t micro_batch);
  void send(int worker, bool gradients, int64_t micro_batch);

 private:
  // Counters of a route.
  struct Room {
    int sending = -1;
    int receiving = -1;
  };

  bool is_of(const parallel::Route& route, int worker, bool sends, bool gradients,
             int64_t micro_batch) const;
  double copy_seconds(const parallel::Route& route, bool sends) const;
  Room room_of(size_t route);
  int transfer_of(size_t route, int64_t micro_batch);

  ItemWriter& writer_;
  std::vector<parallel::Route> routes_;
  std::map<size_t, Room> rooms_;
  std::map<std::pair<size_t, int64_t>, int> transfers_;  // by route and micro-batch
};

}  // namespace millrace::profile
