#include "passes/freeze.h"

#include <algorithm>
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

}  // namespace

void choose_trained(Graph& graph, const TrainedSettings& settings) {
  const std::vector<TensorId> parameters = parameters_of(graph);
  for (const std::string& pattern : settings.freeze) {
    require_fit(graph, parameters, pattern, "--freeze");
  }
  for (const std::string& pattern : settings.train_only) {
    require_fit(graph, parameters, pattern, "--train-only");
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
