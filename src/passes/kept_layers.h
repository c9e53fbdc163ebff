// Layers that a user wants to stay in float32.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace millrace::passes {

// A name stands for the layer of that name and for all whose names begin with it and a dot:
// "layer1" for "layer1.0.conv1".
class KeptLayers {
 public:
  explicit KeptLayers(std::vector<std::string> names) : names_(std::move(names)) {}

  // Of an operator; what follows a slash ("conv1/again") does not count.
  bool contains(std::string_view operator_name) const;

  // Throws InputError naming --precision-keep if a name stands for no operator of the network.
  void require_in(const graph::Graph& network) const;

 private:
  std::vector<std::string> names_;
};

}  // namespace millrace::passes
