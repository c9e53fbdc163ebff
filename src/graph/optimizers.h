// The optimizers, each a row of one table: what the graph, the kernels, the memory plan, the
// command line and checkpoints have to know of them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::graph {

// How weights and states change in a step; kernels/support/update_rules.h has the formulas.
enum class RuleKind : uint8_t {
  plain,     // w -= rate * g
  momentum,  // m = momentum * m + g; w -= rate * m
  nesterov,  // likewise; w -= rate * (g + momentum * m)
  adamw,     // first and second moments with bias correction, decoupled decay
  lars,      // m = momentum * m + rate * g; w -= m
  lamb,      // AdamW's step with the decay in it; w -= rate * step, both moments brought up before
  rmsprop,   // v = beta2 * v + (1 - beta2) * g^2; m = momentum * m + g / (sqrt(v) + epsilon);
             // w -= rate * m
  rmsprop_plain,  // likewise; w -= rate * g / (sqrt(v) + epsilon)
};

// The norm that the length of a tensor's step is fitted to, beside that of its weights.
enum class Trust : uint8_t { none, gradient, step };

struct OptimizerDefinition {
  std::string_view name;  // as users and checkpoints call it
  RuleKind kind = RuleKind::plain;
  // What the names of its states add to the parameter's.
  std::vector<std::string_view> states = {};
  bool counts_updates = false;  // of each parameter, for a bias correction
  Trust trust = Trust::none;

  // The rows that take its place: where momentum is 0, for tensors of rank one or less, and for
  // rows of class centres. Empty: none does.
  std::string_view without_momentum = {};
  std::string_view for_vectors = {};
  std::string_view for_rows = {};

  double learning_rate = 0.1;  // unless a user gives one
  double weight_decay = 1e-4;
  std::vector<std::string_view> settings = {};  // those that it looks at, by name
  int operations = 0;                           // for each weight
  bool listed = true;                           // users may ask for it

  // Types of its operators, made from the name. The second is there with Trust::step alone.
  std::string update_type = {};
  std::string moments_type = {};
};

std::span<const OptimizerDefinition> optimizers();

// By name; null if there is none.
const OptimizerDefinition* find_optimizer(std::string_view name);
// Throws std::logic_error if there is none.
const OptimizerDefinition& optimizer_named(std::string_view name);

// The row that an update with this momentum follows.
const OptimizerDefinition& row_for(const OptimizerDefinition& chosen, double momentum);

// As a list for a person, those with the setting if one is named: "sgd, adamw or lars".
std::string optimizer_names(std::string_view setting = {});

}  // namespace millrace::graph
