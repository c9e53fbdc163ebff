// Sums and gatherings among the devices of a stage of a simulated job.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "profile/simulation/item_writer.h"

namespace millrace::profile {

// Every member of a stage joins its collectives in the same order; each begins when all have come.
// They run beside the kernels, one after the other on each device. Borrows the writer.
class SimulatedCollectives {
 public:
  explicit SimulatedCollectives(ItemWriter& writer);

  // Returns the item after which the collective is over.
  int join(int worker, planner::Collective kind, double bytes);

 private:
  struct Meeting {
    int meet = -1;
    int done = -1;
  };

  bool is_in_one_machine(int stage) const;

  ItemWriter& writer_;
  std::vector<planner::LinkPath> rings_;                    // of each stage
  std::vector<int64_t> joined_;                             // by each worker
  std::map<std::pair<int, int64_t>, Meeting> collectives_;  // by stage and number
};

}  // namespace millrace::profile
