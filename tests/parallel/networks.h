// Small networks with the traits of those that users train.
#pragma once

#include <map>
#include <string>

#include "testing.h"

namespace millrace::testing {

inline constexpr int64_t kClasses = 23;

graph::Graph alexnet_like(int64_t batch);  // dropout, label smoothing
graph::Graph vgg_like(int64_t batch);
graph::Graph resnet_like(int64_t batch);  // batch normalisation, short cuts, prelu

// Values of parameters, buffers and inputs, by name.
std::map<std::string, Values> first_values(const graph::Graph& graph);

}  // namespace millrace::testing
