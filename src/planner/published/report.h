// The published tables next to what the planner predicts, as JSON.
#pragma once

#include "planner/published/fit.h"

namespace millrace::planner {

// {"rows", "median", "worst"}.
Json describe(const FitQuality& quality);

// {"rows": [...], "errors": {"all", "fitted", "unseen"}, "memory_errors": the same of the memory,
// "order": {...}, "fits": {...}}. Each row
// has its configuration, the published time and memory (null where none is), the predicted ones,
// the relative error, whether the fit has seen it, and what Millrace itself would take.
Json compare_published(const PublishedTables& tables, const CostConstants& constants);

// Pairs of rows of one family whose published times differ by more than `tie` and whose
// predictions come in the other order; and how many pairs there are.
struct OrderCheck {
  size_t pairs = 0;
  size_t reversed = 0;
};
OrderCheck check_order(const PublishedTables& tables, const std::vector<RowError>& errors,
                       double tie = 0.03);

// Of the rows of which it is known whether they fit, how many are predicted so.
struct FitsCheck {
  size_t known = 0;
  size_t right = 0;
};
FitsCheck check_fits(const PublishedTables& tables, const CostConstants& constants);

}  // namespace millrace::planner
