// Sums and gatherings among the devices of a stage of a simulated job.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "simulate/items/item_writer.h"

namespace millrace::simulate {

// Every member of a stage joins its collectives in the same order; each begins when all have come.
// They run beside the kernels, one after the other on each device. Borrows the writer.
class SimulatedCollectives {
 public:
  explicit SimulatedCollectives(ItemWriter& writer);

  // Begins what the step says; returns the item after which it is over. Where one worker stands for
  // its stage, what it waits for runs in its own thread.
  int join(int worker, const CostedStep& step, int64_t micro_batch);

 private:
  struct Meeting {
    int meet = -1;
    int done = -1;
  };

  void take_time(int id, int stage, const CostedStep& step);
  void take_host(int id, int device, int members, const CostedStep& step);
  bool is_in_one_machine(int stage) const;

  ItemWriter& writer_;
  std::vector<LinkPath> rings_;                             // of each stage
  std::vector<int64_t> joined_;                             // by each worker
  std::map<std::pair<int, int64_t>, Meeting> collectives_;  // by stage and number
};

}  // namespace millrace::simulate
