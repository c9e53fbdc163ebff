#include "train/metric.h"

#include <gmock/gmock.h>

#include "support.h"
#include "train/loop/best_model.h"

namespace millrace::train {
namespace {

using ::testing::HasSubstr;

EvaluationReport report(int64_t step, double top1, double loss) {
  return {.step = step, .samples = 10, .figures = {{"loss", loss}, {"top1", top1}, {"top5", 1}}};
}

TEST(MetricTest, ASmallerLossAndALargerShareAreBetter) {
  EXPECT_TRUE((Measured{"loss", 0.1}).better_than({"loss", 0.2}));
  EXPECT_FALSE((Measured{"loss", 0.2}).better_than({"loss", 0.2}));
  EXPECT_TRUE((Measured{"top1", 0.3}).better_than({"top1", 0.2}));
  const double none = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE((Measured{"loss", 7}).better_than({"loss", none}));
  EXPECT_FALSE((Measured{"loss", none}).better_than({"loss", 7}));
  EXPECT_FALSE((Measured{"loss", none}).better_than({"loss", none}));
  EXPECT_EQ(report(1, 0.5, 2).figure("loss").value, 2);
  EXPECT_EQ(report(1, 0.5, 2).figure("top1").value, 0.5);
  EXPECT_EQ(report(1, 0.5, 2).figure("top5").value, 1);
}

TEST(MetricTest, TravelsAsJsonAndByName) {
  for (const std::string& metric : metric_names()) {
    const auto back = parse_measured(to_json(Measured{metric, 0.25}));
    ASSERT_TRUE(back);
    EXPECT_EQ(back->metric, metric);
    EXPECT_EQ(back->value, 0.25);
    EXPECT_EQ(metric_named(metric).name, metric);
  }
  EXPECT_FALSE(parse_measured({{"metric", "speed"}, {"value", 1}}));
  EXPECT_FALSE(parse_measured(nullptr));
  EXPECT_THAT(input_error_of([] { metric_named("los"); }), HasSubstr("did you mean 'loss'?"));
}

TEST(BestModelTest, PatienceCountsEvaluationsInARow) {
  BestModel best("loss", 2);
  EXPECT_TRUE(best.look(report(10, 0, 3)));
  EXPECT_FALSE(best.look(report(20, 0, 3)));
  EXPECT_FALSE(best.exhausted());
  EXPECT_TRUE(best.look(report(30, 0, 2)));
  EXPECT_FALSE(best.look(report(40, 0, 2.5)));
  EXPECT_FALSE(best.exhausted());
  EXPECT_FALSE(best.look(report(50, 0, 2.5)));
  EXPECT_TRUE(best.exhausted());
  EXPECT_EQ(best.describe(),
            "No better figure in 2 evaluations: the best was loss 2.0000 at step 30.");
}

TEST(BestModelTest, AResumedRunWaitsNoLongerThanOneThatWentOn) {
  BestModel first("top1", 2);
  first.look(report(10, 0.9, 0));
  first.look(report(20, 0.8, 0));
  BestModel second("top1", 2);
  second.resume(Json::parse(first.record().dump()));
  EXPECT_FALSE(second.exhausted());
  EXPECT_FALSE(second.look(report(30, 0.85, 0)));
  EXPECT_TRUE(second.exhausted());
  BestModel other("loss", 2);  // another metric starts anew
  other.resume(first.record());
  EXPECT_TRUE(other.look(report(30, 0, 5)));
  BestModel never("top1", 0);
  for (int i = 0; i < 50; ++i) never.look(report(i, 0.5, 0));
  EXPECT_FALSE(never.exhausted());
}

}  // namespace
}  // namespace millrace::train
