// How far predictions from profiles were off where they were checked against runs.
#pragma once

#include <vector>

namespace millrace::planner {

// Relative errors without their sign, kept in data/checked_predictions.csv.
std::vector<double> checked_errors();

// The value below which a share of the values lies, between two of them in proportion; `values` are
// not empty.
double quantile(std::vector<double> values, double share);

}  // namespace millrace::planner
