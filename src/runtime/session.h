// A model on a device: programs bound to one arena.
//
// Owns the arena; the device, which several sessions may share, and the programs must outlive it.
// All calls come from one thread and return when the device has finished, but for those that say
// that they enqueue.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/device.h"
#include "compile/program.h"
#include "runtime/device_collectives.h"

namespace millrace {

// Seconds spent in one instruction.
struct InstructionTime {
  const Instruction* instruction = nullptr;
  double seconds = 0;
};

// Which copies of its memory a program works on.
struct Frame {
  int slot = 0;         // of the micro-batch
  int version = 0;      // of the parameters that forward and backward read
  int new_version = 0;  // that updates write
  // The version that updates begin from: each parameter is copied from there before its update,
  // when nothing reads its old value any more. -1: `new_version` has it already.
  int newest_version = -1;
  int64_t micro_batch = -1;  // as the trace calls it
};

class Session : private StreamObserver {
 public:
  // The first program's state is the session's; the others must share it (compile_evaluation).
  // The arena is large enough for each of them.
  Session(Device& device, std::vector<const Program*> programs);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  Device& device() { return device_; }
  // What everything is enqueued on.
  Stream& stream() const { return *stream_; }
  int64_t arena_bytes() const { return arena_->bytes(); }
  int64_t resident_bytes() const { return arena_->resident_bytes(); }

  // Where buffers for what goes to and comes from other stages lie: behind everything that any of
  // the programs uses, as long as all were compiled with the same channel_bytes.
  DeviceAddress channels() const;

  // How it reaches the other devices; borrowed, null for a device alone.
  void set_collectives(DeviceCollectives* collectives) { collectives_ = collectives; }

  // Records each instruction from now on; before anything is enqueued. Borrowed, may be null.
  void set_trace(TraceRecorder* trace, int device);

  // Fills parameters and buffers by their initializers and zeroes optimizer state.
  void initialize(uint64_t seed);

  // Runs one program once.
  void run(const Program& program, const StepState& step);

  // Makes current what updates have put off (Kernel::settle), so that the state is what it would be
  // had they not. Between runs.
  void settle();

  // Enqueues a phase; called on the device's own thread.
  void run_phase(const Program& program, const PhaseRange& range, const Frame& frame,
                 const StepState& step);

  // Enqueues a copy of one version of the parameters over another; likewise.
  void copy_version(int from, int to);

  // The version that `read_state` and `write_state` use from now on.
  void set_current_version(int version) { version_ = version; }
  int current_version() const { return version_; }

  // As run, timing each instruction.
  std::vector<InstructionTime> run_timed(const Program& program, const StepState& step);

  // Writes an f32 input given in plain row-major order, converting to the slot's layout; the
  // size must match. Labels are s32.
  void write_input(const Program& program, std::string_view name, std::span<const float> values);
  void write_input(const Program& program, std::string_view name, std::span<const int32_t> values);

  // Where a slot lies in the arena.
  DeviceAddress address(const Program& program, const Slot& slot, int copy = 0) const;

  // Enqueues on `stream` that a slot is filled from plain row-major order, or copied to there.
  void copy_in(const Program& program, const Slot& slot, int copy, const void* values,
               Stream& stream);
  void copy_out(const Program& program, const Slot& slot, int copy, void* values,
                Stream& stream) const;

  // A result in plain row-major order; `scalar` for one-element results, from any thread.
  std::vector<float> result(const Program& program, std::string_view name) const;
  float scalar(const Program& program, std::string_view name) const;

  // Parameters, buffers and optimizer state, by name, in plain row-major order, as f32 whatever
  // they are stored as.
  const std::vector<Slot>& state() const;
  // Of a slot that has a part of the tensor's memory, `write_state` takes the whole tensor, and
  // `read_part` gives the part as it lies there.
  void read_state(const Slot& slot, std::span<float> values) const;
  void read_part(const Slot& slot, std::span<float> values) const;
  void write_state(const Slot& slot, std::span<const float> values);
  // Some bytes of a tensor as it is stored; it must lie whole and in plain order.
  void read_bytes(const Slot& slot, int64_t first, std::span<std::byte> bytes) const;
  void write_bytes(const Slot& slot, int64_t first, std::span<const std::byte> bytes);

 private:
  void require(const Program& program) const;
  void ran(const CommandNote& note, int64_t begin, int64_t end) override;
  CommandNote note_of(const Program& program, const Instruction& instruction,
                      const Frame& frame) const;
  DeviceAddress state_address(const Slot& slot) const;
  DeviceAddress plain_address(const Slot& slot, int64_t first, size_t bytes) const;
  void write_slot(const Program& program, const Slot& slot, const void* values);
  void read_slot(const Program& program, const Slot& slot, void* values) const;
  // Enqueues what `enqueue` does, on the device's own thread, and waits for it.
  template <typename Enqueue>
  void finish(Enqueue&& enqueue) const;
  void store(const Slot& slot, uint64_t seed, int64_t first, std::span<const float> values);
  BoundOperands bind(const Program& program, const Instruction& instruction, const Frame& frame);
  void run_one(const Program& program, const Instruction& instruction, const Frame& frame,
               const StepState& step);
  void find_carried();
  void carry(size_t instruction, const Frame& frame);

  Device& device_;
  std::vector<const Program*> programs_;
  std::unique_ptr<Region> arena_;
  DeviceCollectives* collectives_ = nullptr;
  int version_ = 0;
  // By instruction of the first program: parameters that no update before it has touched.
  std::vector<std::vector<const Slot*>> carried_;
  TraceRecorder* trace_ = nullptr;
  int trace_device_ = 0;
  std::vector<std::vector<TraceLabel>> labels_;  // by program and instruction, with a trace
  std::vector<DeviceAddress> inputs_;            // of the instruction that is enqueued now
  std::vector<DeviceAddress> outputs_;
  std::unique_ptr<Stream> stream_;  // last: it uses everything above
};

}  // namespace millrace
