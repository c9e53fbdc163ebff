// Messages between the stages of a simulated job.
#pragma once

#include <cstdint>
#include <vector>

#include "simulate/items/item_writer.h"

namespace millrace::simulate {

// Writes what devices do to send and receive, and the transfers between them. Where a receiver has
// a number of slots, what is sent waits for one buffer of the sender's and for one of those.
// Borrows the writer.
class SimulatedMessages {
 public:
  explicit SimulatedMessages(ItemWriter& writer);

  // Micro-batches are counted from 0 again.
  void start_segment();

  // What a task waits for; `arrive` says which item of the task it is that waits, where receiving
  // takes none of its own.
  void receive(int worker, bool gradients, int64_t micro_batch);
  void arrive(int id);

  // `made`: the item behind which there is something to send.
  void send(int worker, bool gradients, int64_t micro_batch, int made);

  // When all tasks of a segment are written: lets what was received wait for what was sent.
  void connect();

 private:
  struct Ways {
    std::vector<size_t> out, in;  // places in the messages
  };
  // Counters of a message.
  struct Room {
    int sending = -1;
    int receiving = -1;
  };
  struct Arrival {
    int id = -1;
    size_t message = 0;
    int64_t micro_batch = 0;
  };

  const std::vector<Message>& messages() const { return writer_.job().costs.messages; }
  Ways& ways(int worker, bool gradients);
  Room room_of(size_t message);
  int add_transfer(size_t number, int from, int to, int64_t micro_batch);

  ItemWriter& writer_;
  std::vector<Ways> ways_;  // of each worker: activations, gradients
  std::vector<Room> rooms_;
  std::vector<std::vector<int>> transfers_;  // by message and micro-batch
  std::vector<Arrival> arrivals_;
  size_t bound_ = 0;  // arrivals that know their item
};

}  // namespace millrace::simulate
