#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "gradient_check.h"

namespace millrace::testing {
namespace {

// Running statistics are carried along, not trained.
std::vector<size_t> constants_of(const OperatorCase& entry) {
  return entry.type == "batch_norm" ? std::vector<size_t>{3, 4} : std::vector<size_t>{};
}

TEST(Gradients, AgreeWithDifferenceQuotients) {
  for (const OperatorCase& entry : read_cases("gradients")) {
    EXPECT_EQ(check_gradients(entry, constants_of(entry)), "") << entry.line;
  }
}

TEST(Gradients, EveryDifferentiableOperatorIsChecked) {
  // The margin head updates its centres itself; margin_head_test.cpp has its gradients, and
  // tests/heads those of margins that differ from sample to sample.
  std::set<std::string_view> checked = {"margin_head_loss", "margin_head_statistics",
                                        "margin_head_cosines", "margin_head_margins",
                                        "margin_head_running_margins"};
  const auto cases = read_cases("gradients");
  for (const OperatorCase& entry : cases) checked.insert(entry.type);
  // These have gradients only together with what feeds them; tests/parallel compares them with
  // the operators for which they stand.
  checked.insert({"split_softmax_loss", "batch_norm_synchronised"});
  for (const graph::OperatorDefinition& definition : graph::all_definitions()) {
    if (definition.differentiate == nullptr) continue;
    EXPECT_TRUE(checked.contains(definition.type)) << definition.type;
  }
}

TEST(Gradients, QuotientsAreThoseOfTheFormula) {
  const SingleOperator single("tanh", {}, {{{2, 3}, graph::DataType::f32}});
  const Values x = spaced_values(single.inputs[0], 5);
  const Values weights = random_values(single.outputs[0], 6);
  Values expected(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    expected[i] = weights[i] * (1 - std::tanh(x[i]) * std::tanh(x[i]));
  }
  const Values quotients = difference_quotients(single, {x}, 0, weights);
  EXPECT_EQ(difference(quotients, expected, 1e-3), "");
  expected[3] += 0.01;
  EXPECT_NE(difference(quotients, expected, 1e-3), "");
}

}  // namespace
}  // namespace millrace::testing
