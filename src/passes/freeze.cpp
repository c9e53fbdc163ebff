#include "passes/freeze.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/pattern.h"
#include "base/text.h"

namespace millrace {
namespace {

std::vector<TensorId> parameters_of(const Graph& graph) {
  std::vector<TensorId> parameters;
  for (TensorId id = 0; id < graph.tensor_count(); ++id) {
    if (graph.tensor(id).role == Role::parameter) parameters.push_back(id);
  }
  return parameters;
}

void require_fit(const Graph& graph, const std::vector<TensorId>& parameters,
                 const std::string& pattern, std::string_view flag) {
  std::vector<std::string> names;
  for (const TensorId id : parameters) {
    const std::string& name = graph.tensor(id).name;
    if (fits_pattern(pattern, name)) return;
    for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
      names.push_back(name.substr(0, dot));
    }
  }
  const std::string close = nearest(pattern, names);
  fail_input("{} '{}' fits no layer of the network{}.", flag, pattern,
             close.empty() ? "" : fmt::format("; did you mean '{}'?", close));
}

// Centres of a margin head are updated by the head itself.
void require_no_head(const Graph& graph, const std::string& name) {
  for (const OperatorId id : graph.order()) {
    const Operator& op = graph.op(id);
    if (!op.type.starts_with("margin_head")) continue;
    for (const TensorId input : op.inputs) {
      if (graph.tensor(input).name == name) {
        fail_input("--freeze cannot hold '{}', which --head trains.", name);
      }
    }
  }
}

// "layer1.0" of "layer1.0.conv1.weight", "conv1" of "conv1.weight": what decays together.
std::string block_of(const std::string& name) {
  const size_t first = name.find('.');
  if (first == std::string::npos) return name;
  const size_t second = name.find('.', first + 1);
  if (second == std::string::npos) return name.substr(0, first);
  const std::string part = name.substr(first + 1, second - first - 1);
  const bool is_number = part.find_first_not_of("0123456789") == std::string::npos;
  return name.substr(0, is_number ? second : first);
}

// The last block has the factor 1, the one before it `decay`, and so on.
void decay_layers(Graph& graph, const std::vector<TensorId>& parameters, double decay) {
  std::vector<std::string> blocks;
  std::map<std::string, size_t> place;
  for (const OperatorId id : graph.order()) {
    for (const TensorId input : graph.op(id).inputs) {
      if (graph.tensor(input).role != Role::parameter) continue;
      const std::string block = block_of(graph.tensor(input).name);
      if (place.emplace(block, blocks.size()).second) blocks.push_back(block);
    }
  }
  for (const TensorId id : parameters) {
    const size_t behind = blocks.size() - 1 - place[block_of(graph.tensor(id).name)];
    graph.tensor(id).rate *= std::pow(decay, static_cast<double>(behind));
  }
}

}  // namespace

void choose_trained(Graph& graph, const TrainedSettings& settings) {
  const std::vector<TensorId> parameters = parameters_of(graph);
  for (const std::string& pattern : settings.freeze) {
    require_fit(graph, parameters, pattern, "--freeze");
  }
  for (const std::string& pattern : settings.train_only) {
    require_fit(graph, parameters, pattern, "--train-only");
  }
  if (settings.layer_decay != 1) decay_layers(graph, parameters, settings.layer_decay);
  for (const RateScale& scale : settings.rates) {
    require_fit(graph, parameters, scale.pattern, "--lr-scale");
    for (const TensorId id : parameters) {
      if (fits_pattern(scale.pattern, graph.tensor(id).name)) graph.tensor(id).rate *= scale.factor;
    }
  }
  size_t frozen = 0;
  for (const TensorId id : parameters) {
    Tensor& tensor = graph.tensor(id);
    const bool is_left_out =
        !settings.train_only.empty() && !fits_any(settings.train_only, tensor.name);
    if (!is_left_out && !fits_any(settings.freeze, tensor.name)) continue;
    require_no_head(graph, tensor.name);
    tensor.role = Role::buffer;
    ++frozen;
  }
  if (!parameters.empty() && frozen == parameters.size()) {
    fail_input("--freeze and --train-only leave nothing to train.");
  }
}

}  // namespace millrace
