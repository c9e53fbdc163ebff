#include "bench/scaling.h"

#include <gmock/gmock.h>

namespace millrace::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

ScalingRow row(int devices, const std::string& precision, std::vector<double> runs) {
  ScalingRow made;
  made.devices = devices;
  made.precision = precision;
  made.runs = std::move(runs);
  return made;
}

TEST(Scaling, ComparesMedians) {
  std::vector<ScalingRow> rows = {row(2, "fp32", {8, 12, 9, 10, 90}), row(1, "fp32", {5, 4, 6}),
                                  row(1, "bf16", {7, 8, 9}), row(2, "bf16", {20, 10, 18}),
                                  row(4, "bf16", {})};
  rows.back().refusal = "it ended";
  rows[3].shares_cores = true;
  compare(rows);
  EXPECT_EQ(rows[0].samples_per_second, 10);
  EXPECT_EQ(rows[0].speed_up, 2);
  EXPECT_EQ(rows[0].over_float32, 1);
  EXPECT_EQ(rows[1].speed_up, 1);
  EXPECT_EQ(rows[2].over_float32, 8.0 / 5);
  EXPECT_EQ(rows[3].speed_up, 18.0 / 8);
  EXPECT_EQ(rows[3].over_float32, 1.8);
  EXPECT_EQ(rows[4].samples_per_second, 0);

  ScalingOptions options;
  options.devices = {1, 2, 4};
  options.cores = 2;
  const std::string table = to_table(rows, options);
  EXPECT_THAT(table, HasSubstr("2*"));
  EXPECT_THAT(table, HasSubstr("share the 2 cores"));
  EXPECT_THAT(table, HasSubstr("it ended"));
  rows.resize(3);
  EXPECT_THAT(to_table(rows, options), Not(HasSubstr("share the")));
  const Json json = to_json(rows, options);
  EXPECT_EQ(json["rows"][0]["samples_per_second"], 10);
  EXPECT_EQ(json["rows"][2]["over_fp32"], 1.6);
  EXPECT_EQ(json["threads_per_device"], 1);
}

TEST(Scaling, EveryDeviceHasTheSameThreads) {
  ScalingOptions options;
  options.cores = 16;
  EXPECT_EQ(threads_of(options), 2);
  options.cores = 2;
  EXPECT_EQ(threads_of(options), 1);
  options.threads = 3;
  EXPECT_EQ(threads_of(options), 3);
}

}  // namespace
}  // namespace millrace::bench
