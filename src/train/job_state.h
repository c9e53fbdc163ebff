// The state of a whole job, wherever its pieces lie.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "train/engine.h"

namespace millrace {

// A parameter, buffer or state of the optimizer as the job's user sees it: whole, f32 in plain
// row-major order, once.
struct JobTensor {
  std::string name;
  Role role = Role::parameter;
  Shape shape;
};

// Knows which device has which piece of every tensor: all of it, a slice along an axis, or a part
// of its memory. Borrows the engine, which must have been started. Reading and writing are called
// by all processes for the same tensor; the first process has the values.
class JobState {
 public:
  explicit JobState(Engine& engine);

  // In the order of the network.
  const std::vector<JobTensor>& tensors() const { return tensors_; }

  // Whether this process is the one that has the values.
  bool holds_values() const;

  // The first process's text, in all of them.
  std::string agree(const std::string& text) const;

  // `values` is left alone in the other processes.
  void read(size_t tensor, std::vector<float>& values) const;
  // Likewise only read in the first process.
  void write(size_t tensor, std::span<const float> values);

 private:
  struct Piece {
    int rank = 0;
    int worker = 0;  // of that rank
    int slot = 0;    // of its first program's state
    Shape shape;
    std::string layout;
    Slice slice;
    Part part;
  };

  // Its plain values where it is whole, or else its bytes as they lie in memory.
  std::vector<float> fetch(const Piece& piece) const;
  const Slot& slot_of(const Piece& piece) const;

  Engine& engine_;
  std::vector<JobTensor> tensors_;
  std::vector<std::vector<Piece>> pieces_;  // by tensor
};

}  // namespace millrace
