#include <gmock/gmock.h>

#include "program.h"

namespace millrace::cli {
namespace {

using ::testing::HasSubstr;

class DataCommandTest : public ProgramTest {};

const std::string kSynth = "data synth ofrecord:set --count 12 --classes 3 --height 40 --width 50";

TEST_F(DataCommandTest, SynthConvertInspectVerify) {
  ASSERT_EQ(run(kSynth).status, 0);
  const Outcome converted = run("data convert ofrecord:set recordio:set.rec --json");
  ASSERT_EQ(converted.status, 0) << converted.errors;
  EXPECT_EQ(Json::parse(converted.output)["records"], 12);
  const Outcome inspected = run("data inspect recordio:set.rec --json");
  ASSERT_EQ(inspected.status, 0) << inspected.errors;
  const Json facts = Json::parse(inspected.output);
  EXPECT_EQ(facts["records"], 12);
  EXPECT_EQ(facts["classes"], 3);
  EXPECT_EQ(run("data verify recordio:set.rec --classes 3").status, 0);
  EXPECT_EQ(run("data verify recordio:set.rec --classes 2").status, 1);
}

TEST_F(DataCommandTest, BadUsageIsOneSentence) {
  expect_refusal("data", "synth");
  expect_refusal("data inspect", "missing");
  expect_refusal("data inspect nothing", "nothing");
  expect_refusal("data inspect ofrecord:absent", "absent");
  expect_refusal("data verify ofrecord:absent --split tset", "did you mean 'test'?");
  expect_refusal("data synth ofrecord:x --cuont 3", "did you mean '--count'?");
}

TEST_F(DataCommandTest, TrainingNamesABadRecord) {
  ASSERT_EQ(
      run("data synth ofrecord:set --count 12 --classes 3 --height 28 --width 28 --channels 1")
          .status,
      0);
  const auto part = work() / "set" / "part-00000";
  std::string bytes = read_text(part);
  bytes.resize(bytes.size() - 10);
  write_text(part, bytes);
  const std::string train =
      "train --model fashion_cnn --classes 3 --batch 4 --epochs 1 --threads-per-device 1 "
      "--conv-algo direct --quiet --data ofrecord:set";
  const Outcome failed = run(train);
  EXPECT_EQ(failed.status, 2);
  EXPECT_THAT(failed.errors, HasSubstr("part-00000"));
  const Outcome skipped = run(train + " --on-bad-record skip --summary s.json");
  ASSERT_EQ(skipped.status, 0) << skipped.errors;
  EXPECT_EQ(Json::parse(read_text(work() / "s.json"))["skipped_records"], 1);
}

}  // namespace
}  // namespace millrace::cli
