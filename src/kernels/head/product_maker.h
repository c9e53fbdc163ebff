// What both halves of the margin head do with a block: read its centres and multiply them with
// the embeddings.
#pragma once

#include <algorithm>

#include "base/parallel.h"
#include "kernels/head/block_matmul.h"
#include "kernels/head/centre_block.h"
#include "kernels/head/head_problem.h"
#include "kernels/head/row_clock.h"
#include "kernels/head/workspace.h"

namespace millrace::kernels {

// A block of classes: first .. first + count of the sample. Borrows the memory it was made in.
struct HeadBlock {
  int64_t first = 0;
  int64_t count = 0;
  const int32_t* classes = nullptr;  // `count` of them
  CentreBlock centres;
  float* products = nullptr;       // rows x batch, of raw centres and embeddings
  const float* factors = nullptr;  // scale / norm of each row
};

// Borrows the problem. Memory is booked in two pieces: one for all threads, one for each part.
class ProductMaker {
 public:
  explicit ProductMaker(const HeadProblem& problem);

  // Of the operands: the stored centres', or f32.
  graph::DataType operand() const { return operand_; }

  void book_shared(WorkspaceBook& book);
  void book_part(WorkspaceBook& book);

  // Prepares the embeddings of a run; before any `make`.
  void pack(const float* embeddings, std::byte* shared, std::byte* part);

  // One step of one part. `kept` holds the kept products; those of a block that has a place there
  // go there, and with `known` are already there.
  struct Job {
    const ClassSample& sample;
    const CentreRows& centres;
    int64_t blocks;
    float* kept;
    bool known;
    std::byte* shared;
    const LateRows* late;  // null: all rows are current
  };
  HeadBlock make(const Job& job, int64_t number, int part_number, std::byte* part);

  // A current row of centres in float32: itself, or made in the part's memory, where it stays until
  // the next call.
  const float* values(const Job& job, int64_t row, std::byte* part) const;

 private:
  const HeadProblem& problem_;
  graph::DataType operand_;
  BlockMatmul matmul_;
  uint64_t packed_ = 0;
  uint64_t classes_ = 0, centres_ = 0, norms_ = 0, factors_ = 0, rows_ = 0, products_ = 0,
           scratchpad_ = 0;
};

// Calls body(part, first, last) with each part's share of the blocks.
template <typename Body>
void each_part(const HeadProblem& problem, int64_t blocks, Body&& body) {
  parallel_for(problem.parts, 0, [&](int64_t part) {
    body(static_cast<int>(part), blocks * part / problem.parts,
         blocks * (part + 1) / problem.parts);
  });
}

// Calls body(i, row) for each sample i whose class is a row of the block.
template <typename Body>
void each_target(const HeadProblem& problem, const ClassSample& sample, const HeadBlock& block,
                 Body&& body) {
  for (int64_t i = 0; i < problem.batch; ++i) {
    const int64_t row = sample.targets()[i] - block.first;
    if (row >= 0 && row < block.count) body(i, row);
  }
}

}  // namespace millrace::kernels
