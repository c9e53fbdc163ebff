// Runs schedules without devices: to prove that they end, and to tell how long they take.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "parallel/schedule.h"

namespace millrace::parallel {

// A bounded queue from one stage to another: activations where from < to, gradients where
// from > to. Each pair of rows has its own with this many slots. A producer begins when a slot is
// free for what it will make; a slot is free again when its reader's task has ended. What runs so
// also runs where slots are taken later or given back earlier.
struct Channel {
  int from = 0;
  int to = 0;
  int64_t slots = 1;
};

// One channel each way between neighbours with `slots`, and for each skip connection (from, to) one
// each way with as many slots as there are rows on its way, so that it never holds up the stages
// between.
std::vector<Channel> channels_between(const Schedule& schedule, int64_t slots = 2,
                                      const std::vector<std::pair<int, int>>& skips = {});

// Proves that a table is complete and can run: every micro-batch goes forward and backward once in
// each stage, on one row, in order; updates are as many as they should be and behind the
// gradients they include; every version read exists and is still kept, is the forward's version in
// backward, and obeys the schedule's rule (synchronous: the step's; 2bw: the step's before it;
// otherwise at most as stale as the bound); no more is in flight than declared; and with
// these channels nothing waits for ever, found by running it symbolically. Returns an empty string,
// or one sentence naming the first fault or the tasks that are stuck.
std::string check(const Schedule& schedule, const std::vector<Channel>& channels);

// Seconds. `task` may be null: then a forward takes 1, a backward 2, its parts 1 each, an update 0.
struct Costs {
  std::function<double(int stage, const Task& task)> task;
  // From the end of the producer's task until the consumer may begin; channels work at the side.
  std::function<double(const Channel& channel)> transfer;
};

struct SimulatedTask {
  Task task;
  double begin = 0;
  double end = 0;
};

struct Simulation {
  double seconds = 0;                            // until the last row has ended
  std::vector<std::vector<SimulatedTask>> rows;  // in the order in which they ran
  std::vector<double> busy;                      // per row
  // The same order as the devices ran: (row, position in rows[row]) by begin.
  std::vector<std::pair<int, int>> order;

  // Idle time over all time, (p-1)/(m+p-1) for equal stages; and idle time over busy time,
  // (p-1)/m. Means over the rows.
  double bubble_of_total() const;
  double bubble_of_ideal() const;
};

// Throws InputError with the sentence of `check` where a schedule gets stuck.
Simulation simulate(const Schedule& schedule, const std::vector<Channel>& channels,
                    const Costs& costs = {});

// One order for a device that runs these rows: the row's own; of several (stages that share the
// device) the schedule's, or a merge of their tasks that cannot get stuck if every device follows
// its own such merge.
std::vector<RowTask> interleave(const Schedule& schedule, const std::vector<int>& rows,
                                const std::vector<Channel>& channels, const Costs& costs = {});

}  // namespace millrace::parallel
