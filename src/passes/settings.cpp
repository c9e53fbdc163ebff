#include "passes/settings.h"

#include <stdexcept>

namespace millrace::passes {

const graph::OptimizerDefinition& OptimizerSettings::row_of_centres() const {
  const graph::OptimizerDefinition& chosen = graph::optimizer_named(name);
  return graph::row_for(chosen.for_rows.empty() ? chosen : graph::optimizer_named(chosen.for_rows),
                        momentum);
}

graph::Attributes attributes_of(const OptimizerSettings& settings) {
  return {{"momentum", settings.momentum}, {"weight_decay", settings.weight_decay},
          {"nesterov", settings.nesterov}, {"beta1", settings.beta1},
          {"beta2", settings.beta2},       {"epsilon", settings.epsilon},
          {"trust", settings.trust}};
}

std::string_view precision_name(graph::DataType type) {
  switch (type) {
    case graph::DataType::f32:
      return "fp32";
    case graph::DataType::f16:
      return "fp16";
    case graph::DataType::bf16:
      return "bf16";
    default:
      throw std::logic_error("a precision is f32, f16 or bf16");
  }
}

std::string_view name_of(PrecisionSettings::Arithmetic arithmetic) {
  constexpr std::string_view kNames[] = {"auto", "native", "storage"};
  return kNames[static_cast<size_t>(arithmetic)];
}

}  // namespace millrace::passes
