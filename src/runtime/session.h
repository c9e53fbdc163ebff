// A model on a device: programs bound to one arena.
//
// Owns nothing but bookkeeping; the device and the programs must outlive it. All calls come
// from one thread and return when the device has finished.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compile/program.h"
#include "runtime/device.h"

namespace millrace {

// Seconds spent in one instruction.
struct InstructionTime {
  const Instruction* instruction = nullptr;
  double seconds = 0;
};

class Session {
 public:
  // The first program's state is the session's; the others must share it (compile_evaluation).
  // Allocates the device's arena for the largest of them.
  Session(Device& device, std::vector<const Program*> programs);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Fills parameters and buffers by their initializers and zeroes optimizer state.
  void initialize(uint64_t seed);

  // Runs one program once.
  void run(const Program& program, const StepState& step);

  // As run, timing each instruction.
  std::vector<InstructionTime> run_timed(const Program& program, const StepState& step);

  // Writes an f32 input given in plain row-major order, converting to the slot's layout; the
  // size must match. Labels are s32.
  void write_input(const Program& program, std::string_view name, std::span<const float> values);
  void write_input(const Program& program, std::string_view name, std::span<const int32_t> values);

  // A result in plain row-major order; `scalar` for one-element results.
  std::vector<float> result(const Program& program, std::string_view name) const;
  float scalar(const Program& program, std::string_view name) const;

  // Parameters, buffers and optimizer state, by name, in plain row-major order, as f32 whatever
  // they are stored as.
  const std::vector<Slot>& state() const;
  void read_state(const Slot& slot, std::span<float> values) const;
  void write_state(const Slot& slot, std::span<const float> values);

 private:
  struct Bound;
  const Bound& bound(const Program& program) const;
  void write_slot(const Slot& slot, const std::byte* values);
  void read_slot(const Slot& slot, std::byte* values) const;

  Device& device_;
  std::vector<const Program*> programs_;
  std::vector<Bound> bound_;
};

}  // namespace millrace
