// Runs one stage's row of a schedule on one device: enqueues the instructions of its tasks and
// waits only where a decision needs a value.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "parallel/schedule.h"
#include "runtime/device_channels.h"
#include "runtime/input_gate.h"
#include "runtime/overflow.h"
#include "runtime/step_queue.h"

namespace millrace::runtime {

// What a device runs between two points at which the pipeline is empty.
struct Segment {
  const parallel::Schedule* schedule = nullptr;  // borrowed until the segment has ended
  uint64_t seed = 0;
  int64_t first_step = 0;  // of the job
  std::function<float(int64_t step)> learning_rate = {};
  float loss_scale = 1;        // of all its steps
  StepQueue* steps = nullptr;  // takes the last stage's sums; may be null
};

struct StageRunnerOptions {
  int stage = 0;
  int member = 0;
  parallel::Turn turn = {};        // the member's; every one where replicas share micro-batches
  comm::Group messages;            // this device's handle in the job's group for messages
  Loopbacks* loopbacks = nullptr;  // only for stages that share a device
  TraceRecorder* trace = nullptr;
  int trace_device = 0;
  int64_t micro_batch_rows = 0;  // of the job's micro-batch
  // Where replicas that share each micro-batch agree on an order that is left to run time: a group
  // of them, or nothing for a stage on one device or with whole micro-batches in turn.
  std::optional<comm::Group> agreement = {};
  // Results of one number that each step tells of, by name, where the stage has them.
  std::vector<std::string> results = {};
};

// Values of an input: plain and row-major, this device's rows.
struct FedInput {
  const compile::Slot* slot = nullptr;
  const void* values = nullptr;
};

// One per (device, stage). Borrows the session, whose collectives are set, and the programs: the
// training program in phases with as many slots and versions as the schedule's row needs, and
// perhaps one for evaluation of the same micro-batches.
//
// For each segment the owner calls `prepare`, then `run_stages` on the device's thread, and
// meanwhile feeds images and labels, for stages that read them, from a thread of its own: `feed`
// for each of the device's micro-batches in order. A run that fails throws on the device's thread
// and on the feeding one; the owner then ends the job's groups, so that the other devices do not
// wait for this one.
//
// Weights of several versions: at a segment's beginning all versions are the session's current
// one, which at its end is the newest.
class StageRunner {
 public:
  StageRunner(const StageRunnerOptions& options, Session& session, const compile::Program& training,
              const compile::Program* evaluation = nullptr);

  int stage() const { return options_.stage; }
  // The schedule's row that this device follows.
  int row(const parallel::Schedule& schedule) const;

  // Updates so far, for the optimizer; 0 unless set.
  void set_updates(int64_t count) {
    updates_before_ = count;
    updates_ = 0;
  }
  int64_t updates() const { return updates_before_ + updates_; }

  // Of them, those that changed nothing because of an overflow; 0 unless set.
  void set_skipped(int64_t count) { skipped_ = count; }
  // Those of the segment. Where stages update each for itself, each has its own.
  const std::vector<SkippedUpdate>& skips() const { return skips_; }

  void prepare(const Segment& segment);
  void prepare_evaluation(int64_t micro_batches);

  // Whether the feeding thread has something to write, and which inputs.
  const std::vector<const compile::Slot*>& fed_inputs() const { return fed_; }
  // Micro-batches of this device, by number, in what was prepared.
  int64_t micro_batches() const { return static_cast<int64_t>(own_.size()); }
  // Which micro-batch of the segment that is.
  int64_t micro_batch(int64_t number) const { return own_[static_cast<size_t>(number)]; }
  // Waits for the slot, and until the values are in it; none: those of the last call are still
  // there. A device with one slot takes them itself when it comes to it, with all its threads.
  void feed(int64_t number, const std::vector<FedInput>& inputs);
  // Ends a run that cannot be fed.
  void close() { gate_.close(); }

  // The rest on the device's thread.
  void start();
  void execute(const parallel::Task& task);
  // Runs everything in an order found on the way, for schedules without a fixed one.
  void run_free();
  void finish();

  // Synchronous schedules whose programs check for overflow or clip by a norm: an update stops
  // behind what this tells of, and goes on with the sums over all devices.
  Findings findings();
  void finish_update(const Findings& all);

  // Enqueues forward of one micro-batch with the evaluation program; its results then are in the
  // session's slots until the next one.
  void evaluate(int64_t micro_batch);
  void finish_evaluation();

  const WaitMeter& waits() const { return waits_; }
  // The most updates of its stage that a forward did not see but should have on one device.
  int64_t largest_staleness() const { return largest_staleness_; }

 private:
  // Waits for the feeding thread.
  void take_inputs(int64_t number, int64_t micro_batch);
  void forward(const parallel::Task& task);
  void backward(const parallel::Task& task);
  void run_task(const parallel::Task& task, const compile::TaskRange& range, const Frame& frame);
  // Runs the first instructions of the range that are one event of the trace; where they end.
  size_t run_part(const compile::Program& program, const compile::TaskRange& range,
                  const Frame& frame, const kernels::StepState& state);
  void update(const parallel::Task& task);
  void run_update(size_t begin, size_t end);
  void note_skip(int64_t first, int64_t last);
  bool updates_with_others() const;
  void read_results(const parallel::Task& task, int slot);
  void prepare_accumulators(const parallel::Task& task);
  DeviceChannelOptions lanes_of(const compile::Program& program);
  DeviceChannels& channels_of(const compile::Program& program);
  void begin_pass(const compile::Program& program, int64_t micro_batches, int slots);
  void ask_for_all() const;
  parallel::Task choose();
  std::optional<parallel::Task> ready_task() const;
  std::optional<parallel::Task> due_update() const;
  // Whether everything that its task receives is there, and there is room for what it sends.
  bool can_move(parallel::Work work, int64_t micro_batch) const;

  // Of a micro-batch among this device's.
  int64_t number_of(int64_t micro_batch) const { return micro_batch / options_.turn.every; }
  int slot_of(int64_t micro_batch) const;
  int version(int64_t of_segment) const;
  const parallel::Row& table() const;
  bool updates_in_backward() const { return training_.find(parallel::Work::update) == nullptr; }
  kernels::StepState step_state(int64_t micro_batch) const;

  const StageRunnerOptions options_;
  Session& session_;
  const compile::Program& training_;
  const compile::Program* const evaluation_;
  Bell bell_;
  InputGate gate_;
  WaitMeter waits_;
  DeviceChannels channels_;
  // Null unless there is another program for evaluation; used while no message of training is under
  // way, and the other way round.
  std::unique_ptr<DeviceChannels> channels_of_evaluation_;
  const std::vector<const compile::Slot*>
      results_;  // those asked for; null where the stage has none

  const compile::Program* active_ = nullptr;
  std::vector<const compile::Slot*> fed_;
  std::vector<int64_t> own_;  // this device's micro-batches
  Segment segment_;
  int first_version_ = 0;
  int64_t updates_before_ = 0;     // of the segment
  int64_t updates_ = 0;            // in it
  int64_t last_included_ = -1;     // micro-batch in an update
  int64_t accumulated_ = 0;        // micro-batches since the last update
  std::vector<int64_t> versions_;  // that each forward read
  int64_t backwards_ = 0;
  int64_t largest_staleness_ = 0;
  int64_t skipped_ = 0;
  std::vector<SkippedUpdate> skips_;
  std::optional<parallel::Task> pending_;           // update that waits for the other stages
  std::unique_ptr<StepReads> reads_;                // of the step that is under way
  std::unique_ptr<backend::Stream> feed_;           // of the feeding thread
  const std::vector<FedInput>* offered_ = nullptr;  // to a device that takes inputs itself
};

// Runs a prepared segment for all the stages of a device, on its thread. `tasks` is the order that
// was decided for it (interleave); a single stage whose schedule has no fixed order finds its own.
// `everyone`, if given, is this device's handle of a group of all devices, which add up at the end
// what they found.
void run_stages(const std::vector<StageRunner*>& stages, const parallel::Schedule& schedule,
                const std::vector<parallel::RowTask>& tasks,
                std::optional<comm::Group> everyone = {});

// Runs a prepared evaluation, on the device's thread. `finished` is called with each stage and
// micro-batch while the results are there.
void evaluate_stages(const std::vector<StageRunner*>& stages,
                     const std::function<void(StageRunner&, int64_t)>& finished);

}  // namespace millrace::runtime
