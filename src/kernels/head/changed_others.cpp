#include "kernels/head/changed_others.h"

#include <algorithm>

namespace millrace::kernels {

void ChangedOthers::book(const HeadProblem& problem, WorkspaceBook& shared, WorkspaceBook& part) {
  hard_ = shared.floats(problem.batch);
  ones_ = shared.floats(problem.rows);
  logits_ = part.floats(problem.block_elements());
}

void ChangedOthers::begin(const HeadProblem& problem, const graph::SampleMargin* margins,
                          std::byte* shared, size_t stride) {
  std::fill_n(booked<float>(shared, ones_), problem.rows, 1.0f);
  others_ = {.scale = static_cast<float>(problem.margin.scale)};
  others_.limit = static_cast<float>(problem.filter * problem.margin.scale);
  if (problem.margin.kind != graph::HeadMargin::curriculum) return;
  others_.growth = margins->subtrahend;
  others_.hard = booked<float>(shared, hard_);
  for (int64_t i = 0; i < problem.batch; ++i) {
    const auto* row = reinterpret_cast<const std::byte*>(margins) + static_cast<size_t>(i) * stride;
    booked<float>(shared, hard_)[i] = reinterpret_cast<const graph::SampleMargin*>(row)->addend;
  }
}

ProductBlock ChangedOthers::changed(const ProductBlock& block, std::byte* shared,
                                    std::byte* part) const {
  auto* logits = booked<float>(part, logits_);
  change_logits(block, others_, logits);
  return {logits, booked<float>(shared, ones_), block.rows, block.batch};
}

}  // namespace millrace::kernels
