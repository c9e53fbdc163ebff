// The order in which the devices of a simulated job run their tasks.
#pragma once

#include <vector>

#include "parallel/schedule.h"
#include "simulate/items/workers.h"

namespace millrace::simulate {

struct WorkerTask {
  int worker = 0;
  parallel::Task task;
};

// Of each device that works; of each of its stages, where devices run what is ready (`free`).
std::vector<std::vector<WorkerTask>> task_orders(const SimulatedJob& job,
                                                 const SimulatedWorkers& workers,
                                                 const parallel::Schedule& schedule, bool free);

}  // namespace millrace::simulate
