// How well a fit to some of the published rows predicts the others, over many random halves.
#pragma once

#include <vector>

#include "planner/published/report.h"

namespace millrace {

// What the fit to one random half says about all rows.
struct CrossFit {
  uint64_t seed = 0;
  FitQuality fitted, unseen, memory;  // memory of the rows that were held out
  size_t worst_row = 0;               // held out, as an index into the tables
  OrderCheck order;
  FitsCheck fits;
};

// Fits to `random:first`, `random:first+1` ... in turn. Rows of any kind are drawn alike, so that a
// half may have none of a kind.
std::vector<CrossFit> cross_fit(const CostConstants& start, int halves, uint64_t first = 1);

// Bars for the rows that a fit has not seen.
inline constexpr double kMedianBar = 0.08, kWorstBar = 0.20;

// The share of the fits that keep both bars.
double share_within_bars(const std::vector<CrossFit>& fits);

// {"halves": [...], "median", "worst" and "memory": {"least", "middle", "tenth", "most"},
// "within_bars"}; "tenth" is exceeded by one half in ten.
Json describe(const std::vector<CrossFit>& fits, const PublishedTables& tables);

}  // namespace millrace
