// Executes a schedule symbolically: rows, queues between them, a clock. Used by the checker and
// the simulator only.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "parallel/simulation.h"

namespace millrace::parallel {

class Machine {
 public:
  // What a row of a schedule without fixed order begins when both could start at once.
  enum class Preference : uint8_t { backward, forward };

  Machine(const Schedule& schedule, const std::vector<Channel>& channels, const Costs& costs);

  // Runs until nothing can begin.
  void run(Preference preference);
  bool finished() const;

  // One sentence: which tasks cannot begin, and what each waits for.
  std::string describe_stuck() const;

  // The result, once; with `order` by begin.
  Simulation take();

 private:
  struct Queue {
    const Channel* channel = nullptr;
    std::vector<std::pair<int64_t, double>> sent;  // micro-batch, when it arrives
    std::vector<double> freed;                     // when each slot was given back, in order
  };
  struct RowState {
    double free_at = 0;
    size_t position = 0;  // of the next task, fixed order
    size_t forwards = 0;  // begun, as an index into `own`, and so on
    size_t backwards = 0;
    int64_t updates = 0;
    std::vector<int64_t> own;
    std::vector<int64_t> versions;
  };

  std::vector<Task> candidates(int row) const;
  // When the task may begin, or nothing; `reason` then says what it waits for.
  std::optional<double> begin_of(int row, const Task& task, std::string* reason = nullptr) const;
  std::optional<double> meeting_of(int row, const Task& task, std::string* reason) const;
  void execute(int row, const Task& task, double begin);
  void finish(int row, const Task& task, double begin);
  bool step_fixed();
  bool step_free(Preference preference);
  bool ended(int row) const;
  // Of a schedule that says what each device does.
  size_t device_of(int row) const { return static_cast<size_t>(row) % schedule_.orders.size(); }

  bool reads(const Channel& channel, int stage, const Task& task) const;
  bool writes(const Channel& channel, int stage, const Task& task) const;
  size_t queue_of(size_t channel, int64_t micro_batch) const;
  const Row& row_at(int row) const { return schedule_.rows[static_cast<size_t>(row)]; }
  RowState& state(int row) { return states_[static_cast<size_t>(row)]; }
  const RowState& state(int row) const { return states_[static_cast<size_t>(row)]; }
  int row_count() const { return static_cast<int>(schedule_.rows.size()); }

  const Schedule& schedule_;
  const std::vector<Channel>& channels_;
  const Costs& costs_;
  std::vector<RowState> states_;
  std::vector<std::vector<Queue>> queues_;        // per channel, per pair of rows
  std::vector<std::vector<size_t>> channels_of_;  // by stage, those that touch it
  std::vector<size_t> ordered_;  // tasks that each device has done of schedule_.orders
  Simulation result_;
};

}  // namespace millrace::parallel
