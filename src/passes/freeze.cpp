#include "passes/freeze.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/pattern.h"
#include "base/text.h"
#include "graph/margin_head.h"
#include "graph/operator_definition.h"

namespace millrace::passes {
namespace {

std::vector<graph::TensorId> parameters_of(const graph::Graph& graph) {
  std::vector<graph::TensorId> parameters;
  for (graph::TensorId id = 0; id < graph.tensor_count(); ++id) {
    if (graph.tensor(id).role == graph::Role::parameter) parameters.push_back(id);
  }
  return parameters;
}

void require_fit(const graph::Graph& graph, const std::vector<graph::TensorId>& parameters,
                 const std::string& pattern, std::string_view flag) {
  std::vector<std::string> names;
  for (const graph::TensorId id : parameters) {
    const std::string& name = graph.tensor(id).name;
    if (fits_pattern(pattern, name)) return;
    for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
      names.push_back(name.substr(0, dot));
    }
  }
  const std::string close = nearest(pattern, names);
  if (!close.empty()) {
    fail_input("{} '{}' fits no layer of the network; did you mean '{}'?", flag, pattern, close);
  }
  std::vector<std::string> first;
  for (const std::string& name : names) {
    const std::string part = name.substr(0, name.find('.'));
    if (std::ranges::find(first, part) == first.end()) first.push_back(part);
  }
  fail_input("{} '{}' fits no layer of the network, which has {}.", flag, pattern,
             fmt::join(first, ", "));
}

// Centres of a margin head are updated by the head itself.
void require_no_head(const graph::Graph& graph, const std::string& name) {
  for (const graph::OperatorId id : graph.order()) {
    const graph::Operator& op = graph.op(id);
    if (!graph::definition_of(op).is_head) continue;
    for (const graph::TensorId input : op.inputs) {
      if (graph.tensor(input).name == name) {
        fail_input("‹freeze› cannot hold '{}', which ‹head› trains.", name);
      }
    }
  }
}

// "layer1.0" of "layer1.0.conv1.weight", "features.denseblock2" of what is in it, "conv1" of
// "conv1.weight": what decays together.
std::string block_of(const std::string& name) {
  const size_t first = name.find('.');
  if (first == std::string::npos) return name;
  const size_t second = name.find('.', first + 1);
  if (second == std::string::npos) return name.substr(0, first);
  const bool is_numbered = std::isdigit(static_cast<unsigned char>(name[second - 1])) != 0;
  return name.substr(0, is_numbered ? second : first);
}

// The last block has the factor 1, the one before it `decay`, and so on.
void decay_layers(graph::Graph& graph, const std::vector<graph::TensorId>& parameters,
                  double decay) {
  std::vector<std::string> blocks;
  std::map<std::string, size_t> place;
  for (const graph::OperatorId id : graph.order()) {
    for (const graph::TensorId input : graph.op(id).inputs) {
      if (graph.tensor(input).role != graph::Role::parameter) continue;
      const std::string block = block_of(graph.tensor(input).name);
      if (place.emplace(block, blocks.size()).second) blocks.push_back(block);
    }
  }
  for (const graph::TensorId id : parameters) {
    const size_t behind = blocks.size() - 1 - place[block_of(graph.tensor(id).name)];
    graph.tensor(id).rate *= std::pow(decay, static_cast<double>(behind));
  }
}

// They then normalise as in an evaluation.
size_t freeze_norms(graph::Graph& graph) {
  size_t frozen = 0;
  bool any = false;
  for (const graph::OperatorId id : graph.order()) {
    graph::Operator& op = graph.op(id);
    if (!graph::definition_of(op).has_running_statistics) continue;
    any = true;
    op.attributes.set("inference", true);
    for (const graph::TensorId input : {op.inputs.at(1), op.inputs.at(2)}) {
      graph::Tensor& tensor = graph.tensor(input);
      if (tensor.role != graph::Role::parameter) continue;
      tensor.role = graph::Role::buffer;
      ++frozen;
    }
  }
  if (!any) fail_input("‹freeze_norms›: the network has no batch norms.");
  return frozen;
}

}  // namespace

void choose_trained(graph::Graph& graph, const TrainedSettings& settings) {
  const std::vector<graph::TensorId> parameters = parameters_of(graph);
  for (const std::string& pattern : settings.freeze) {
    require_fit(graph, parameters, pattern, "‹freeze›");
  }
  for (const std::string& pattern : settings.train_only) {
    require_fit(graph, parameters, pattern, "‹train_only›");
  }
  if (settings.layer_decay != 1) decay_layers(graph, parameters, settings.layer_decay);
  if (settings.head_rate != 1) {
    for (const graph::TensorId id : parameters) {
      graph::Tensor& tensor = graph.tensor(id);
      if (tensor.name.starts_with(graph::kHeadPrefix)) tensor.rate *= settings.head_rate;
    }
  }
  for (const RateScale& scale : settings.rates) {
    require_fit(graph, parameters, scale.pattern, "‹lr_scale›");
    for (const graph::TensorId id : parameters) {
      graph::Tensor& tensor = graph.tensor(id);
      if (!fits_pattern(scale.pattern, tensor.name)) continue;
      tensor.rate *= scale.factor;
    }
  }
  size_t frozen = settings.freeze_norms ? freeze_norms(graph) : 0;
  for (const graph::TensorId id : parameters) {
    graph::Tensor& tensor = graph.tensor(id);
    if (tensor.role != graph::Role::parameter) continue;
    const bool is_left_out =
        !settings.train_only.empty() && !fits_any(settings.train_only, tensor.name);
    if (!is_left_out && !fits_any(settings.freeze, tensor.name)) continue;
    require_no_head(graph, tensor.name);
    tensor.role = graph::Role::buffer;
    ++frozen;
  }
  if (!parameters.empty() && frozen == parameters.size()) {
    fail_input("‹freeze›, ‹train_only› and ‹freeze_norms› leave nothing to train.");
  }
}

}  // namespace millrace::passes
