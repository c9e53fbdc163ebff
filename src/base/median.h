// The middle of measured values.
#pragma once

#include <vector>

namespace millrace {

// The middle value, or the mean of the two middle ones; `of_none` where there are none.
double median(std::vector<double> values, double of_none = 0);

// The value below which a share of the values lies, between two of them in proportion; 0 of none.
double quantile(std::vector<double> values, double share);

}  // namespace millrace
