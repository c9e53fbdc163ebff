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
#include "runtime/device_channels.h"
#include "runtime/device_collectives.h"

namespace millrace::runtime {

// Seconds spent in one instruction.
struct InstructionTime {
  const compile::Instruction* instruction = nullptr;
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
  int64_t micro_batch = -1;  // -1: of no schedule; nothing goes to other stages or comes from them
};

class Session : private backend::StreamObserver {
 public:
  // The first program's state is the session's; the others must share it (compile_evaluation).
  // The arena is large enough for each of them.
  Session(backend::Device& device, std::vector<const compile::Program*> programs);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  backend::Device& device() { return device_; }
  // What everything is enqueued on.
  backend::Stream& stream() const { return *stream_; }
  int64_t arena_bytes() const { return arena_->bytes(); }
  int64_t resident_bytes() const { return arena_->resident_bytes(); }

  // Where the rings of what goes to and comes from other stages lie: at the arena's end.
  backend::DeviceAddress channels(const compile::Program& program) const;

  // How it reaches the other devices; borrowed, null for a device alone.
  void set_collectives(DeviceCollectives* collectives) { collectives_ = collectives; }

  // And those of other stages; likewise.
  void set_channels(DeviceChannels* channels) { channels_ = channels; }

  // Records each instruction from now on; before anything is enqueued. Borrowed, may be null.
  void set_trace(TraceRecorder* trace, int device);

  // Fills parameters and buffers by their initializers and zeroes optimizer state.
  void initialize(uint64_t seed);

  // Runs one program once.
  void run(const compile::Program& program, const kernels::StepState& step);

  // Makes current what updates have put off (Kernel::settle), so that the state is what it would be
  // had they not. Between runs.
  void settle();

  // Enqueues instructions of a task; called on the device's own thread.
  void run_task(const compile::Program& program, const compile::TaskRange& range,
                const Frame& frame, const kernels::StepState& step);

  // Enqueues a copy of one version of the parameters over another; likewise.
  void copy_version(int from, int to);

  // The version that `read_state` and `write_state` use from now on.
  void set_current_version(int version) { version_ = version; }
  int current_version() const { return version_; }

  // As run, timing each instruction.
  std::vector<InstructionTime> run_timed(const compile::Program& program,
                                         const kernels::StepState& step);

  // Writes an f32 input given in plain row-major order, converting to the slot's layout; the
  // size must match. Labels are s32.
  void write_input(const compile::Program& program, std::string_view name,
                   std::span<const float> values);
  void write_input(const compile::Program& program, std::string_view name,
                   std::span<const int32_t> values);

  // Where a slot, or something of a program, lies in the arena.
  backend::DeviceAddress address(const compile::Program& program, const compile::Slot& slot,
                                 int copy = 0) const {
    return address(program, slot.address, copy);
  }
  backend::DeviceAddress address(const compile::Program& program, const compile::Address& address,
                                 int copy = 0) const;

  // Enqueues on `stream` that a slot is filled from plain row-major order, or copied to there.
  void copy_in(const compile::Program& program, const compile::Slot& slot, int copy,
               const void* values, backend::Stream& stream);
  void copy_out(const compile::Program& program, const compile::Slot& slot, int copy, void* values,
                backend::Stream& stream) const;

  // A result in plain row-major order; `scalar` for one-element results, from any thread.
  std::vector<float> result(const compile::Program& program, std::string_view name) const;
  float scalar(const compile::Program& program, std::string_view name) const;

  // Parameters, buffers and optimizer state, by name, in plain row-major order, as f32 whatever
  // they are stored as.
  const std::vector<compile::Slot>& state() const;
  // Of a slot that has a part of the tensor's memory, `write_state` takes the whole tensor, and
  // `read_part` gives the part as it lies there.
  void read_state(const compile::Slot& slot, std::span<float> values) const;
  void read_part(const compile::Slot& slot, std::span<float> values) const;
  void write_state(const compile::Slot& slot, std::span<const float> values);
  // Some bytes of a tensor as it is stored; it must lie whole and in plain order.
  void read_bytes(const compile::Slot& slot, int64_t first, std::span<std::byte> bytes) const;
  void write_bytes(const compile::Slot& slot, int64_t first, std::span<const std::byte> bytes);

 private:
  void require(const compile::Program& program) const;
  void ran(const backend::CommandNote& note, int64_t begin, int64_t end) override;
  backend::CommandNote note_of(const compile::Program& program,
                               const compile::Instruction& instruction, const Frame& frame) const;
  backend::DeviceAddress state_address(const compile::Slot& slot) const;
  backend::DeviceAddress plain_address(const compile::Slot& slot, int64_t first,
                                       size_t bytes) const;
  void write_slot(const compile::Program& program, const compile::Slot& slot, const void* values);
  void read_slot(const compile::Program& program, const compile::Slot& slot, void* values) const;
  // Enqueues what `enqueue` does, on the device's own thread, and waits for it.
  template <typename Enqueue>
  void finish(Enqueue&& enqueue) const;
  void store(const compile::Slot& slot, int64_t first, std::span<const float> values);
  BoundOperands bind(const compile::Program& program, const compile::Instruction& instruction,
                     const Frame& frame);
  static backend::command::Launch launch_of(kernels::Kernel& kernel,
                                            const compile::Instruction& instruction,
                                            const BoundOperands& operands,
                                            const kernels::StepState* step);
  void run_one(const compile::Program& program, const compile::Instruction& instruction,
               const Frame& frame, const kernels::StepState& step);
  void launch(const compile::Program& program, const compile::Instruction& instruction,
              const Frame& frame, const kernels::StepState& step);
  void copy(const compile::Program& program, const compile::Instruction& instruction,
            const Frame& frame);

  backend::Device& device_;
  std::vector<const compile::Program*> programs_;
  std::unique_ptr<backend::Region> arena_;
  DeviceCollectives* collectives_ = nullptr;
  DeviceChannels* channels_ = nullptr;
  int version_ = 0;
  TraceRecorder* trace_ = nullptr;
  int trace_device_ = 0;
  std::vector<std::vector<TraceLabel>> labels_;  // by program and instruction, with a trace
  std::vector<backend::DeviceAddress> inputs_;   // of the instruction that is enqueued now
  std::vector<backend::DeviceAddress> outputs_;
  std::vector<kernels::Extent> extents_;
  std::unique_ptr<backend::Stream> stream_;  // last: it uses everything above
};

}  // namespace millrace::runtime
