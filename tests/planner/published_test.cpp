#include <gmock/gmock.h>

#include <cmath>
#include <map>

#include "base/error.h"
#include "planner/data/table.h"
#include "planner/published/interval.h"
#include "planner/published/report.h"

namespace millrace::planner {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(PublishedTest, FieldsMayBeQuoted) {
  EXPECT_THAT(split_fields("a,\"b,c\",,d\r"), ElementsAre("a", "b,c", "", "d"));
}

TEST(PublishedTest, TablesHaveEveryRow) {
  const PublishedTables tables = published_tables(builtin_constants());
  size_t timed = 0, fitted = 0, refused = 0;
  for (const PublishedRow& row : tables.rows) {
    timed += row.seconds_per_step.has_value();
    fitted += row.fitted;
    refused += row.published_not_to_fit;
    EXPECT_TRUE(!row.fitted || row.seconds_per_step.has_value()) << row.label;
    EXPECT_EQ(row.job.stages.back().end, static_cast<int>(tables.network(row).layers.size()));
  }
  EXPECT_EQ(tables.rows.size(), 27u + 33u);
  EXPECT_EQ(timed, 27u);
  EXPECT_LE(2 * fitted, timed);
  EXPECT_EQ(refused, 1u + 3u);
}

TEST(PublishedTest, RowsBecomeTheirJobs) {
  const PublishedTables tables = published_tables(builtin_constants());
  const PublishedRow& pipeline = tables.rows[2];
  EXPECT_EQ(pipeline.model, "vgg16");
  EXPECT_DOUBLE_EQ(pipeline.job.samples_per_step(), 224);
  EXPECT_NEAR(*pipeline.seconds_per_step, 1262.5 / (1281167 / 224.0), 1e-9);
  EXPECT_THAT(pipeline.memory_mib, ElementsAre(7885, 4499));
  EXPECT_EQ(pipeline.job.stages[0].devices.size(), 7u);
}

TEST(PublishedTest, ErrorsStayWithinTheBars) {
  const CostConstants constants = builtin_constants();
  const PublishedTables tables = published_tables(constants);
  const std::vector<RowError> errors = errors_of(tables, constants);
  ASSERT_EQ(errors.size(), 27u);
  const FitQuality all = quality_of(tables, errors, Rows::all);
  EXPECT_LE(all.median, 0.08);
  EXPECT_LE(all.worst, 0.20);
  const FitQuality unseen = quality_of(tables, errors, Rows::unseen);
  EXPECT_LE(unseen.median, 0.08);
  EXPECT_LE(unseen.worst, 0.20);
  const OrderCheck order = check_order(tables, errors);
  EXPECT_GE(order.pairs, 15u);
  EXPECT_EQ(order.reversed, 0u);
}

TEST(PublishedTest, WhatFitsIsSaidToFitAndTheRestNot) {
  const CostConstants constants = builtin_constants();
  const Json comparison = compare_published(published_tables(constants), constants);
  EXPECT_EQ(comparison["rows"].size(), 60u);
  EXPECT_EQ(comparison["fits"]["known"], comparison["fits"]["right"]);
  EXPECT_EQ(comparison["errors"]["unseen"]["rows"], 15);
}

// The fit finds the same constants as those that are kept, up to rounding.
TEST(PublishedTest, TheFitIsReproducible) {
  CostConstants fitted = fit_constants(unfitted_constants());
  CostConstants kept = builtin_constants();
  const std::vector<ConstantField> found = fields_of(fitted), expected = fields_of(kept);
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].name, expected[i].name);
    EXPECT_NEAR(*found[i].value, *expected[i].value, 1e-3 * std::abs(*expected[i].value))
        << found[i].name;
  }
  EXPECT_NEAR(fitted.worst_error, kept.worst_error, 1e-3);
}

// Measurements by others on one device, with other software: predicted, but for its differences.
TEST(PublishedTest, CalibrationRowsAreNear) {
  const CostConstants constants = builtin_constants();
  const PublishedTables tables = published_tables(constants);
  EXPECT_EQ(tables.calibration.size(), 5u);
  for (const CalibrationRow& calibration : tables.calibration) {
    const PublishedRow& row = calibration.row;
    const double ratio =
        predict_row(tables, row, constants).seconds_per_step / *row.seconds_per_step;
    EXPECT_LE(std::abs(std::log(ratio)), 1.5 * calibration.tolerance) << row.label;
  }
}

TEST(PublishedTest, MemoryErrorsAreMeasuredDeviceByDevice) {
  PublishedTables tables;
  tables.rows.resize(2);
  tables.rows[0].memory_mib = {100, 200};
  tables.rows[1].memory_mib = {};
  const double mebibyte = 1024.0 * 1024.0;
  const std::vector<RowError> errors = {{0, 1, 1, {110 * mebibyte, 140 * mebibyte}},
                                        {1, 1, 1, {5 * mebibyte}}};
  const FitQuality quality = memory_quality_of(tables, errors, Rows::all);
  EXPECT_EQ(quality.rows, 2u);
  EXPECT_NEAR(quality.median, 0.2, 1e-12);
  EXPECT_NEAR(quality.worst, 0.3, 1e-12);
}

TEST(PublishedTest, WhatIsFreeIsReadAndDamageRefused) {
  const Json start = describe(unfitted_constants());
  ASSERT_FALSE(start["free"].empty());
  for (const auto& [key, value] :
       {std::pair<const char*, Json>("constants", Json::array({"no.such"})),
        {"constants", Json::array()},
        {"constants", 3},
        {"spread", 0},
        {"spread", "wide"}}) {
    Json damaged = start;
    damaged["free"][0][key] = value;
    EXPECT_THROW(parse_constants(damaged.dump(), "bad.json"), InputError) << key << " " << value;
  }
  EXPECT_TRUE(is_fitted("oneflow"));
  EXPECT_FALSE(is_fitted("millrace"));
}

TEST(PublishedTest, ConstantsComeBackAndDamagedOnesAreRefused) {
  const Json json = describe(builtin_constants());
  EXPECT_EQ(describe(parse_constants(json.dump(), "copy")), json);
  for (const char* text : {"", "{}", "[1]", "{\"operators\": {}, \"software\": {}}"}) {
    EXPECT_THROW(parse_constants(text, "bad.json"), InputError) << text;
  }
  Json damaged = json;
  damaged["software"]["oneflow"]["overlap"] = "much";
  EXPECT_THROW(parse_constants(damaged.dump(), "bad.json"), InputError);
  try {
    builtin_constants().system("oneflw", "--as");
    ADD_FAILURE();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("did you mean 'oneflow'"));
  }
}

TEST(IntervalTest, BandsHoldTheirShareAndFewGroupsMakeThemWide) {
  std::vector<HeldOutError> errors;
  for (int i = 1; i <= 9; ++i) errors.push_back({LeftOut::nothing, std::to_string(i), 0.01 * i});
  for (const char* group : {"a", "b"}) errors.push_back({LeftOut::model, group, 0.3});
  errors.push_back({LeftOut::cluster, "card", 0.1});
  errors.push_back({LeftOut::system, "theirs", -0.4});
  EXPECT_DOUBLE_EQ(band_of(LeftOut::nothing, errors), 0.08);  // eight of ten
  EXPECT_DOUBLE_EQ(band_of(LeftOut::cluster, errors), 1.25 * 0.1);
  const TimeInterval known = interval_for({"theirs", "card", "a"}, errors);
  EXPECT_NEAR(std::log(known.high), 0.08, 1e-12);
  EXPECT_DOUBLE_EQ(known.low * known.high, 1);
  EXPECT_TRUE(known.unlike.empty());
  EXPECT_EQ(known.rows, 9u);
  const TimeInterval two = interval_for({"ours", "card", "c"}, errors);
  EXPECT_THAT(two.unlike, ElementsAre(LeftOut::model, LeftOut::system));
  EXPECT_NEAR(std::log(two.high), 1.25 * 0.5, 1e-12);  // of 0.3 and 0.4
  EXPECT_TRUE(two.holds(0.6));
  EXPECT_FALSE(two.holds(-0.7));
}

// Each row is judged by the errors of other groups alone.
// What is told of an unseen kind of job are errors on unseen kinds.
TEST(IntervalTest, ErrorsAreThoseOfItsOwnKind) {
  const std::vector<HeldOutError> errors = {{LeftOut::nothing, "row", std::log(1.02)},
                                            {LeftOut::model, "vgg16", std::log(1.1)},
                                            {LeftOut::model, "vgg16", std::log(1.3)},
                                            {LeftOut::cluster, "card", std::log(1.5)},
                                            {LeftOut::system, "one", std::log(1.6)}};
  const auto like = [&](const JobKind& job) {
    return errors_like(interval_for(job, errors), errors);
  };
  EXPECT_NEAR(like({"one", "card", "vgg16"}).worst, 0.02, 1e-12);
  EXPECT_NEAR(like({"one", "card", "new"}).median, 0.2, 1e-12);
  EXPECT_NEAR(like({"one", "card", "new"}).worst, 0.3, 1e-12);
  EXPECT_NEAR(like({"one", "other", "new"}).worst, 0.5, 1e-12);
}

TEST(IntervalTest, CoverageLeavesOutTheGroupItself) {
  std::vector<HeldOutError> errors;
  for (int i = 0; i < 9; ++i) errors.push_back({LeftOut::model, "steady", 0.1});
  errors.push_back({LeftOut::model, "wild", 0.5});
  EXPECT_EQ(held_by_others(LeftOut::model, errors), 9u);
  errors.push_back({LeftOut::model, "wild", 0.05});
  EXPECT_EQ(held_by_others(LeftOut::model, errors), 10u);
}

TEST(IntervalTest, OtherArchitecturesHaveErrorsOfTheirOwn) {
  const std::vector<HeldOutError> errors = {{LeftOut::system, "one", 0.1},
                                            {LeftOut::cluster, "TITAN V", 0.1},
                                            {LeftOut::model, "vgg16", 0.1},
                                            {LeftOut::architecture, "A100", 0.4}};
  const auto unlike = [&](const char* device) {
    return interval_for({"one", device, "vgg16"}, errors).unlike;
  };
  EXPECT_EQ(unlike("V100-SXM3-32GB"), std::vector{LeftOut::cluster});
  EXPECT_EQ(unlike("TITAN RTX"), std::vector{LeftOut::architecture});
  EXPECT_EQ(unlike("A100"), std::vector{LeftOut::architecture});
  EXPECT_NEAR(std::log(interval_for({"one", "board", "vgg16"}, errors).high), 1.25 * 0.4, 1e-9);
}

TEST(IntervalTest, AnArchitectureThatOthersWereMeasuredOnIsKnownBetter) {
  const std::vector<HeldOutError> errors = {{LeftOut::system, "one", 0.1},
                                            {LeftOut::model, "vgg16", 0.1},
                                            {LeftOut::architecture, "A100", 0.4},
                                            {LeftOut::pair, "A100", 0.2}};
  EXPECT_NEAR(std::log(interval_for({"one", "A100", "vgg16"}, errors).high), 1.25 * 0.2, 1e-9);
  EXPECT_NEAR(std::log(interval_for({"one", "H100", "vgg16"}, errors).high), 1.25 * 0.4, 1e-9);
}

// All of them, 12 rates of A100, come out in the middle when much of what is above V100 counts
// less.
TEST(PublishedTest, RatesOfAnotherArchitectureComeOutInTheMiddle) {
  CostConstants constants = builtin_constants();
  const PublishedTables tables = published_tables(constants);
  const auto mean_error = [&] {
    double sum = 0;
    for (const PublishedRow& row : tables.elsewhere) {
      sum += std::log(predict_row(tables, row, constants).seconds_per_step / *row.seconds_per_step);
    }
    return sum / static_cast<double>(tables.elsewhere.size());
  };
  EXPECT_LT(std::abs(mean_error()), 0.05);
  constants.operators.beyond = 1;
  EXPECT_LT(mean_error(), -0.3);
}

TEST(IntervalTest, KeptErrorsAreThoseOfTheTables) {
  const std::vector<HeldOutError> errors = kept_held_out_errors();
  const PublishedTables tables = published_tables(builtin_constants());
  std::map<LeftOut, size_t> counts;
  for (const HeldOutError& error : errors) ++counts[error.kind];
  EXPECT_EQ(counts[LeftOut::nothing], 15u);  // rows with a time that are not fitted
  for (const LeftOut kind : {LeftOut::model, LeftOut::cluster, LeftOut::system}) {
    EXPECT_EQ(counts[kind], 27u) << name_of(kind);
  }
  EXPECT_EQ(counts[LeftOut::architecture], tables.elsewhere.size());
  EXPECT_EQ(counts[LeftOut::pair], tables.elsewhere.size());
  const std::vector<RowError> now = errors_of(tables, builtin_constants(), Rows::unseen);
  size_t place = 0;
  for (const HeldOutError& error : errors) {
    if (error.kind != LeftOut::nothing) continue;
    const RowError& row = now.at(place++);
    EXPECT_NEAR(error.logarithm, std::log(row.predicted_seconds / row.published_seconds), 1e-3);
  }
  EXPECT_EQ(to_csv(errors).find("left_out,group,logarithm\nnothing,\""), 0u);
}

}  // namespace
}  // namespace millrace::planner
