// Limits of the operators that exchange gradients between devices.
#pragma once

namespace millrace::graph {

// Tensors that one exchange may carry.
constexpr int kMostExchangedTensors = 64;

}  // namespace millrace::graph
