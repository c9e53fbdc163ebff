#include "graph/optimizers.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "base/text.h"

namespace millrace::graph {

namespace {

std::vector<OptimizerDefinition> make_table() {
  std::vector<OptimizerDefinition> table = {
      {.name = "sgd",
       .kind = RuleKind::momentum,
       .states = {".momentum"},
       .without_momentum = "sgd_plain",
       .settings = {"momentum", "nesterov"},
       .operations = 6},
      {.name = "adamw",
       .kind = RuleKind::adamw,
       .states = {".first_moment", ".second_moment"},
       .counts_updates = true,
       .learning_rate = 0.001,
       .weight_decay = 0.01,
       .settings = {"adam_beta1", "adam_beta2", "adam_epsilon"},
       .operations = 14},
      {.name = "lars",
       .kind = RuleKind::lars,
       .states = {".momentum"},
       .trust = Trust::gradient,
       .for_vectors = "sgd",
       .for_rows = "sgd",
       .settings = {"momentum", "lars_trust"},
       .operations = 10},
      {.name = "lamb",
       .kind = RuleKind::lamb,
       .states = {".first_moment", ".second_moment"},
       .counts_updates = true,
       .trust = Trust::step,
       .for_vectors = "adamw",
       .for_rows = "adamw",
       .learning_rate = 0.005,
       .weight_decay = 0.01,
       .settings = {"adam_beta1", "adam_beta2", "adam_epsilon"},
       .operations = 20},
      {.name = "rmsprop",
       .kind = RuleKind::rmsprop,
       .states = {".second_moment", ".momentum"},
       .without_momentum = "rmsprop_plain",
       .for_rows = "sgd",
       .learning_rate = 0.01,
       .settings = {"momentum", "adam_beta2", "adam_epsilon"},
       .operations = 11},
      {.name = "rmsprop_plain",
       .kind = RuleKind::rmsprop_plain,
       .states = {".second_moment"},
       .for_rows = "sgd_plain",
       .operations = 9,
       .listed = false},
      {.name = "sgd_plain", .kind = RuleKind::plain, .operations = 4, .listed = false},
  };
  for (OptimizerDefinition& row : table) {
    row.update_type = std::string(row.name) + "_update";
    row.moments_type = std::string(row.name) + "_moments";
  }
  return table;
}

}  // namespace

std::span<const OptimizerDefinition> optimizers() {
  static const std::vector<OptimizerDefinition> table = make_table();
  return table;
}

const OptimizerDefinition* find_optimizer(std::string_view name) {
  for (const OptimizerDefinition& one : optimizers()) {
    if (one.name == name) return &one;
  }
  return nullptr;
}

const OptimizerDefinition& optimizer_named(std::string_view name) {
  if (const OptimizerDefinition* found = find_optimizer(name)) return *found;
  throw std::logic_error(fmt::format("there is no optimizer '{}'", name));
}

const OptimizerDefinition& row_for(const OptimizerDefinition& chosen, double momentum) {
  if (momentum != 0 || chosen.without_momentum.empty()) return chosen;
  return optimizer_named(chosen.without_momentum);
}

std::string optimizer_names(std::string_view setting) {
  std::vector<std::string> names;
  for (const OptimizerDefinition& one : optimizers()) {
    const bool has = setting.empty() || std::find(one.settings.begin(), one.settings.end(),
                                                  setting) != one.settings.end();
    if (one.listed && has) names.emplace_back(one.name);
  }
  return join_choices(names);
}

}  // namespace millrace::graph
