// When each device does what: explicit tables that can be printed, checked and simulated without
// a device. Plain data; no threads.
//
// A segment is everything between two points at which the pipeline is empty: any number of steps.
// Micro-batches are numbered from 0 within the segment, and so are the versions of a stage's
// weights: version v includes v updates of that stage, version 0 is what the segment starts with.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::parallel {

enum class ScheduleKind : uint8_t {
  gpipe,              // all forward, then all backward, one update
  one_f_one_b_flush,  // one forward, one backward in turn, one update per step
  zero_bubble,        // as above, with the weights' gradients apart, where there would be a bubble
  interleaved,  // 1f1b-flush where devices take several stages in turn, a few micro-batches each
  one_f_one_b,  // never drained; each mini-batch updates, and keeps the weights it began with
  ssp,          // the same with a bound on staleness; the order may be left to run time
  two_bw,       // never drained; one update per step, two versions of the weights
};

// "gpipe", "1f1b-flush" and so on.
std::string_view name_of(ScheduleKind kind);
// Of all schedules, or of those that are synchronous or not, for a person: "1f1b, ssp or 2bw".
std::string schedule_names();
std::string schedule_names(bool synchronous);

// Throws InputError for another name, with the nearest one.
ScheduleKind parse_schedule(std::string_view name);

// Whether every step ends with an empty pipeline, so that the weights are those of one device that
// accumulates gradients.
bool is_synchronous(ScheduleKind kind);

enum class Work : uint8_t { forward, backward, backward_input, backward_weights, update };

std::string_view name_of(Work work);

// `version` is the weights that the work reads. An update reads version v and makes v + 1; its
// micro-batch is the last one, on whichever replica, whose gradient it includes.
struct Task {
  Work work = Work::forward;
  int64_t micro_batch = 0;
  int64_t version = 0;

  bool operator==(const Task&) const = default;
};

// What one replica of one stage does, in order.
struct Row {
  int stage = 0;
  int replica = 0;  // always 0 where replicas share each micro-batch
  std::vector<Task> tasks;
  // Copies of the weights that must be kept, the newest included.
  int64_t versions = 1;
  // The most micro-batches that have begun forward and not ended backward, both parts of it.
  int64_t in_flight = 0;
  // The most micro-batches that wait for backward_weights alone; part of in_flight.
  int64_t waiting_weights = 0;
};

// A task of one of the rows that share a device.
struct RowTask {
  int row = 0;
  Task task;
};

struct ScheduleRequest {
  ScheduleKind kind = ScheduleKind::one_f_one_b_flush;
  int stages = 1;
  // In a step: one update of all micro-batches together. 1f1b and ssp with round-robin replicas:
  // one update of this many for each replica.
  int64_t micro_batches = 1;
  int64_t steps = 1;  // in the segment
  // Replicas of each stage; empty is one each. They share each micro-batch (split) or take whole
  // micro-batches in turn (round robin).
  std::vector<int> replicas = {};
  bool round_robin = false;
  // ssp only: false leaves the order to run time, within the bounds of the rows.
  bool static_scheduling = true;
  // Devices that take the stages in turn: stage s runs where stage s mod turns does. 0: stages are
  // placed in some other way, or each on its own.
  int turns = 0;
};

// With split replicas there is one row per stage, which all its replicas follow, each with its part
// of every micro-batch. With round robin there is one row per replica, stage by stage: micro-batch
// b runs on replica b mod R of a stage with R replicas, forward and backward alike, and all
// replicas of a stage meet in its updates. With 1f1b and ssp an update of such a stage takes in
// micro_batches * R consecutive micro-batches; where the segment's do not divide, the last update
// takes in what is left, averaged over what is there. A replica that has nothing to add takes part
// all the same.
struct Schedule {
  ScheduleKind kind = ScheduleKind::gpipe;
  int stages = 1;
  int64_t micro_batches = 1;
  int64_t steps = 1;
  std::vector<int> replicas = {};
  bool round_robin = false;
  // False: a row's tasks are one order among many. At run time a row may begin the next backward
  // whose gradient is there, else the next forward whose input is there while fewer than
  // `in_flight` are in flight, with the newest weights; updates follow their backwards at once.
  bool fixed_order = true;
  std::vector<Row> rows;
  // What each device does, row r being of device r mod orders.size(), where the schedule says that;
  // empty: rows that share a device are merged by `interleave`.
  std::vector<std::vector<RowTask>> orders = {};

  int64_t total_micro_batches() const { return micro_batches * steps; }
  // Rows that a stage has in the table.
  int replicas_of(int stage) const;
  // The row that runs a micro-batch in a stage, as an index into `rows`.
  int row_of(int stage, int64_t micro_batch) const;
  // Whether each update of the row follows the backward of its only micro-batch, so that both are
  // one phase. Not so of replicas in turn: the last round may leave one without a micro-batch, and
  // it still takes part in the update.
  bool updates_at_once(const Row& row) const;
  // The update of the stage that includes this micro-batch, from 0, and how many there are.
  int64_t update_of(int stage, int64_t micro_batch) const;
  int64_t updates_of(int stage) const;
};

// Throws InputError, one sentence, where the request makes no sense: counts below 1, more than
// 4096 stages and replicas together, more than four million tasks, replicas that are not one per
// stage, 2bw with fewer micro-batches than devices in a row, or interleaved where stages are not
// taken in turn or micro-batches do not divide over the devices.
Schedule make_schedule(const ScheduleRequest& request);

// Forwards that a row of `stage` runs before its first backward, 1F1B: the devices behind it,
// divided by its own replicas.
int64_t warm_up(const std::vector<int>& replicas, int stage);

}  // namespace millrace::parallel
