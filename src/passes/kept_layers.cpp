#include "passes/kept_layers.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace millrace::passes {
namespace {

bool stands_for(std::string_view name, std::string_view layer) {
  return layer.starts_with(name) && (layer.size() == name.size() || layer[name.size()] == '.');
}

}  // namespace

bool KeptLayers::contains(std::string_view operator_name) const {
  const std::string_view layer = operator_name.substr(0, operator_name.find('/'));
  return std::any_of(names_.begin(), names_.end(),
                     [&](const std::string& name) { return stands_for(name, layer); });
}

void KeptLayers::require_in(const graph::Graph& network) const {
  std::vector<std::string> layers;
  for (graph::OperatorId id : network.order()) layers.push_back(network.op(id).name);
  for (const std::string& name : names_) {
    const auto known = [&](const std::string& layer) { return stands_for(name, layer); };
    if (!name.empty() && std::any_of(layers.begin(), layers.end(), known)) continue;
    std::string close = nearest(name, layers);
    if (!close.empty()) close = " (did you mean '" + close + "'?)";
    fail_input(
        "‹precision_keep› names '{}', but the network has no such layer{}; ‹dump_passes› writes "
        "the names of all.",
        name, close);
  }
}

}  // namespace millrace::passes
