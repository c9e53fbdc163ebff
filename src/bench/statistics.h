// Small statistics of measurements.
#pragma once

#include <vector>

namespace millrace::bench {

// The middle value, or the mean of the two middle ones; infinity for none.
double median(std::vector<double> values);

}  // namespace millrace::bench
