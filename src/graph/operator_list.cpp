#include <fmt/format.h>

#include <stdexcept>
#include <unordered_map>

#include "graph/operator_definition.h"

namespace millrace::graph {

#define MILLRACE_FAMILY(family)                \
  namespace family {                           \
  std::vector<OperatorDefinition> operators(); \
  }
#include "graph/operators.def"
#undef MILLRACE_FAMILY

namespace {

std::vector<OperatorDefinition> collect() {
  std::vector<OperatorDefinition> all;
#define MILLRACE_FAMILY(family) \
  for (const OperatorDefinition& definition : family::operators()) all.push_back(definition);
#include "graph/operators.def"
#undef MILLRACE_FAMILY
  return all;
}

}  // namespace

const std::vector<OperatorDefinition>& all_definitions() {
  static const std::vector<OperatorDefinition> definitions = collect();
  return definitions;
}

const OperatorDefinition& definition_of(std::string_view type) {
  static const auto by_type = [] {
    std::unordered_map<std::string_view, const OperatorDefinition*> map;
    for (const OperatorDefinition& definition : all_definitions()) {
      map[definition.type] = &definition;
    }
    return map;
  }();
  const auto found = by_type.find(type);
  if (found == by_type.end()) throw std::logic_error(fmt::format("no operator type '{}'", type));
  return *found->second;
}

}  // namespace millrace::graph
