// Logits of other classes that are not scale times their cosines: filtered, or hard ones that count
// more.
#pragma once

#include "kernels/head/head_problem.h"
#include "kernels/head/softmax_block.h"
#include "kernels/head/workspace.h"

namespace millrace::kernels {

// The memory that both halves of the head need for them, and what a step says of them. Used by all
// parts at once behind `begin`.
class ChangedOthers {
 public:
  void book(const HeadProblem& problem, WorkspaceBook& shared, WorkspaceBook& part);

  // `margins` is a row for each sample, `stride` of their sizes apart; null where margins are
  // fixed.
  void begin(const HeadProblem& problem, const graph::SampleMargin* margins, std::byte* shared,
             size_t stride = sizeof(graph::SampleMargin));

  // The block with its logits as they count, in the part's memory, and factors of one.
  ProductBlock changed(const ProductBlock& block, std::byte* shared, std::byte* part) const;

  const OtherClasses& others() const { return others_; }

 private:
  OtherClasses others_;
  uint64_t hard_ = 0, ones_ = 0, logits_ = 0;
};

}  // namespace millrace::kernels
