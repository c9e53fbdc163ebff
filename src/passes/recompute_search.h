// Which of the candidates to recompute; used by recompute.cpp.
#pragma once

#include <cstdint>

#include "passes/recompute_plan.h"

namespace millrace::passes {

// Cheap candidates: all of them, and then keeps whatever can be kept at no greater peak or within
// the budget, what moves the most memory first. Nothing, if recomputing all does not lower the
// peak.
RecomputeChoice choose_cheap(const RecomputePlanner& planner, int64_t budget_bytes);

// Any candidates. The forward pass is divided into segments: what crosses from one to the next is
// kept, what is made within one is made again, one segment at a time. For a number of bounds on the
// memory that a segment may take while it runs backward, alone or with what is still kept then, a
// dynamic program finds the segments that keep the least; those with the least peak are taken. Then
// whatever can be kept at no greater peak, or within the budget, is kept, what costs most for its
// bytes first.
RecomputeChoice choose_segments(const RecomputePlanner& planner, int64_t budget_bytes);

}  // namespace millrace::passes
