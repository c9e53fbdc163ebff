#include <gmock/gmock.h>

#include <cmath>

#include "base/error.h"
#include "planner/published/report.h"

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
