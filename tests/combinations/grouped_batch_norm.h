// Batch norms that normalise groups of rows, as devices do that see their own samples only.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace millrace::combinations {

// The number of rows in each group, by the name of the batch norm.
using RowGroups = std::map<std::string, std::vector<int64_t>>;

// The same network in which each batch norm that is named normalises its groups one by one. The
// groups share scale and bias; each has running statistics of its own: the first has the names of
// the network's, the others have "#1", "#2" … behind them.
graph::Graph with_row_groups(const graph::Graph& network, const RowGroups& groups);

}  // namespace millrace::combinations
