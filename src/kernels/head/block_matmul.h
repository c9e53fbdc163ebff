// Products of small matrices, prepared once by oneDNN and run by one thread each.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>
#include <vector>

#include "graph/types.h"

namespace millrace::kernels {

// C = A * B, or C += A * B, with A m x k (`transposed_a`: stored k x m), B k x n and C m x n.
// A and B are f32 or bf16, C is f32; rows follow each other. With `packed_b` B comes in a layout
// of oneDNN's choice, made by `pack`.
struct BlockMatmulShape {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  graph::DataType type = graph::DataType::f32;
  bool transposed_a = false;
  bool packed_b = false;
  bool accumulates = false;
};

// Owns the primitives and, for each of `parts`, the objects that a run binds, so that every part
// may run at the same time as the others. The caller brings all memory.
class BlockMatmul {
 public:
  BlockMatmul(const BlockMatmulShape& shape, int parts);

  uint64_t scratchpad_bytes() const { return scratchpad_bytes_; }
  uint64_t packed_bytes() const { return packed_bytes_; }

  // Packs B from f32. `transposed`: it is stored n x k.
  void pack(const float* b, bool transposed, std::byte* scratchpad, std::byte* packed);

  void run(int part, const void* a, const void* b, float* c, std::byte* scratchpad);

 private:
  // A primitive and the memory objects it is run with.
  struct Call {
    Call(dnnl::primitive made, const std::vector<std::pair<int, dnnl::memory::desc>>& arguments);
    void run(std::initializer_list<const void*> pointers);

    dnnl::primitive primitive;
    dnnl::stream stream;
    std::vector<dnnl::memory> memories;
    std::vector<dnnl_exec_arg_t> bound;
  };

  std::vector<Call> parts_;
  std::vector<Call> packs_;  // from k x n, from n x k
  uint64_t scratchpad_bytes_ = 0;
  uint64_t packed_bytes_ = 0;
};

// The type of the factors of products of this storage: bf16 for 16 bits where the processor
// multiplies it faster than f32. Sums are always f32.
graph::DataType operand_type(graph::DataType storage);

}  // namespace millrace::kernels
