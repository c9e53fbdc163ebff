// The state of a whole job, wherever its pieces lie.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "train/engine.h"

namespace millrace::train {

// A parameter, buffer or state of the optimizer as the job's user sees it: whole, in plain
// row-major order, once. `stored` is its type on the devices.
struct JobTensor {
  std::string name;
  graph::Role role = graph::Role::parameter;
  graph::Shape shape;
  graph::DataType stored = graph::DataType::f32;

  // The class centres of a margin head and their state may be larger than what a process can hold
  // twice; they are read and written a few rows at a time, as they are stored.
  bool in_rows() const;
  int64_t row_bytes() const {
    return graph::elements_of(shape) / shape.at(0) * graph::size_of(stored);
  }
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

  // Before weights are read to be used elsewhere; called by all processes. See Session::settle.
  void settle() const;

  // `values` is left alone in the other processes.
  void read(size_t tensor, std::vector<float>& values) const;
  // Likewise only read in the first process.
  void write(size_t tensor, std::span<const float> values);

  // Rows from `first` on of a tensor that is in_rows; `bytes` has the same size in all processes.
  void read_rows(size_t tensor, int64_t first, std::span<std::byte> bytes) const;
  void write_rows(size_t tensor, int64_t first, std::span<std::byte> bytes);

  // Where the ranges of rows begin into which the devices divide the tensor, and where the last
  // ends: {0, 500, 1000}.
  std::vector<int64_t> row_bounds(size_t tensor) const;

 private:
  struct Piece {
    int rank = 0;
    int worker = 0;  // of that rank
    int slot = 0;    // of its first program's state
    graph::Shape shape;
    std::string layout;
    graph::Slice slice;
    graph::Part part;
  };

  // Its plain values where it is whole, or else its bytes as they lie in memory.
  std::vector<float> fetch(const Piece& piece) const;
  const compile::Slot& slot_of(const Piece& piece) const;
  // The rows of the piece that are in `bytes`, and where they begin on the device; empty if none
  // is.
  struct SharedRows {
    int64_t begin = 0;  // bytes from the first of the piece
    std::span<std::byte> host;
  };
  static SharedRows shared_rows(const JobTensor& tensor, const Piece& piece, int64_t first,
                                std::span<std::byte> bytes);
  runtime::Session& session_of(const Piece& piece) const;

  Engine& engine_;
  std::vector<JobTensor> tensors_;
  std::vector<std::vector<Piece>> pieces_;  // by tensor
};

}  // namespace millrace::train
