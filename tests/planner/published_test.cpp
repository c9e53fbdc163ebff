#include <gmock/gmock.h>

#include <cmath>

#include "base/error.h"
#include "planner/published/cross.h"

namespace millrace {
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

// Halves that nobody chose must do as well as the bars ask, not only the rows marked in the tables.
TEST(PublishedTest, OtherHalvesPredictTheRestWithinTheBars) {
  for (const char* name : {"odd", "even"}) {
    const FitSplit split = parse_fit_split(name, "--split");
    const CostConstants constants = fit_constants(unfitted_constants(), split);
    const PublishedTables tables = published_tables(constants, split);
    const std::vector<RowError> errors = errors_of(tables, constants);
    const FitQuality unseen = quality_of(tables, errors, Rows::unseen);
    EXPECT_EQ(unseen.rows, 14u) << name;
    EXPECT_LE(unseen.median, kMedianBar) << name;
    EXPECT_LE(unseen.worst, kWorstBar) << name;
    EXPECT_EQ(check_order(tables, errors).reversed, 0u) << name;
  }
}

TEST(PublishedTest, RandomHalvesPredictTheRestWithinTheBars) {
  const std::vector<CrossFit> fits = cross_fit(unfitted_constants(), 4);
  ASSERT_EQ(fits.size(), 4u);
  EXPECT_EQ(fits[3].seed, 4u);
  EXPECT_GE(share_within_bars(fits), 0.75);
  const Json json = describe(fits, published_tables(unfitted_constants()));
  EXPECT_EQ(json["halves"].size(), 4u);
  EXPECT_LE(json["worst"]["least"], json["worst"]["most"]);
}

TEST(PublishedTest, RandomHalvesDifferAndComeBack) {
  const CostConstants constants = unfitted_constants();
  const auto chosen = [&](const char* text) {
    std::vector<size_t> rows;
    const PublishedTables tables = published_tables(constants, parse_fit_split(text, "--split"));
    for (size_t i = 0; i < tables.rows.size(); ++i) {
      if (!tables.rows[i].fitted) continue;
      EXPECT_TRUE(tables.rows[i].seconds_per_step.has_value());
      rows.push_back(i);
    }
    return rows;
  };
  EXPECT_EQ(chosen("random:1").size(), 13u);
  EXPECT_EQ(chosen("random:1"), chosen("random:1"));
  EXPECT_NE(chosen("random:1"), chosen("random:2"));
  for (const char* text : {"", "some", "random", "random:", "random:-1", "random:x"}) {
    EXPECT_THROW(parse_fit_split(text, "--split"), InputError) << text;
  }
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

}  // namespace
}  // namespace millrace
