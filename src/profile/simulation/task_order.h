// The order in which the devices of a simulated job run their tasks.
#pragma once

#include <map>
#include <vector>

#include "parallel/schedule.h"
#include "profile/simulation/workers.h"

namespace millrace::profile {

struct WorkerTask {
  int worker = 0;
  parallel::Task task;
};

// The part of a program that a task runs.
const CostedSteps& steps_of_work(const CostedProgram& program, parallel::Work work);

// Of each device that works.
std::map<int, std::vector<WorkerTask>> tasks_by_device(const SimulatedJob& job,
                                                       const SimulatedWorkers& workers,
                                                       const parallel::Schedule& schedule);

}  // namespace millrace::profile
