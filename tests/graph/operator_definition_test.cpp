// That the fields of the definitions agree with each other; what they lead to is tested where they
// are asked for.
#include "graph/operator_definition.h"

#include <gtest/gtest.h>

namespace millrace::graph {
namespace {

class OperatorDefinitions : public ::testing::TestWithParam<OperatorDefinition> {};

TEST_P(OperatorDefinitions, NameTypesThatExist) {
  for (const std::string_view type : {GetParam().recompute_type, GetParam().of_sum,
                                      GetParam().alone.type, GetParam().normalised}) {
    if (type.empty()) continue;
    EXPECT_EQ(definition_of(type).type, type);
  }
}

TEST_P(OperatorDefinitions, ThoseOfGradientsHaveNoGradient) {
  const OperatorDefinition& definition = GetParam();
  if (definition.gradient == OperatorDefinition::Gradient::none) return;
  EXPECT_EQ(definition.differentiate, nullptr);
  EXPECT_EQ(definition.shardings, nullptr);
  EXPECT_FALSE(definition.is_metric || definition.averages_samples || definition.only_trains);
  EXPECT_EQ(definition.halves, OperatorDefinition::Halves::never);
}

TEST_P(OperatorDefinitions, WhatIsSaidOfPartsIsOfOperatorsThatRunOnParts) {
  const OperatorDefinition& definition = GetParam();
  const bool speaks_of_parts = definition.take_part != nullptr ||
                               definition.expansion != OperatorDefinition::Expansion::none;
  EXPECT_TRUE(!speaks_of_parts || definition.shardings != nullptr);
}

TEST_P(OperatorDefinitions, StatisticsThatRunAreWritten) {
  const OperatorDefinition& definition = GetParam();
  EXPECT_TRUE(!definition.has_running_statistics || definition.mutated_inputs.size() == 2);
  if (definition.alone.type.empty()) return;
  EXPECT_TRUE(definition_of(definition.alone.type).has_running_statistics);
}

TEST_P(OperatorDefinitions, WeightedSumsComputeInHalves) {
  const OperatorDefinition& definition = GetParam();
  const bool is_forward = definition.gradient == OperatorDefinition::Gradient::none;
  EXPECT_EQ(is_forward && definition.weights != OperatorDefinition::Weights::none,
            definition.halves == OperatorDefinition::Halves::computes);
}

INSTANTIATE_TEST_SUITE_P(Each, OperatorDefinitions, ::testing::ValuesIn(all_definitions()),
                         [](const auto& parameter) { return std::string(parameter.param.type); });

}  // namespace
}  // namespace millrace::graph
