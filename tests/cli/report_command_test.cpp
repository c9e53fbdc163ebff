#include <gmock/gmock.h>

#include "program.h"
#include "runtime/trace_file.h"

namespace millrace::cli {
namespace {

using ::testing::HasSubstr;

class ReportCommandTest : public ProgramTest {};

TEST_F(ReportCommandTest, TellsOfARunAndItsTrace) {
  runtime::TraceLog log;
  log.devices = {{0, 0, 0}};
  log.events = {{0, runtime::TraceCategory::forward, "forward", 0, 0, 1'000'000},
                {0, runtime::TraceCategory::wait, "gradients", -1, 1'000'000, 2'000'000},
                {0, runtime::TraceCategory::backward, "backward", 0, 2'000'000, 4'000'000}};
  runtime::write_trace(work() / "trace.json", log);
  const Outcome trained =
      run("train --model fashion_cnn --batch 4 --steps 2 --conv-algo direct --summary run.json");
  ASSERT_EQ(trained.status, 0) << trained.errors;
  const Outcome told = run("report run.json trace.json -o out");
  ASSERT_EQ(told.status, 0) << told.errors;
  EXPECT_THAT(told.output, HasSubstr("- model: fashion_cnn"));
  EXPECT_THAT(told.output, HasSubstr("share of all time (as (p-1)/(m+p-1)): 25.0 %"));
  EXPECT_THAT(told.output, HasSubstr("relative to the work (as (p-1)/m): 33.3 %"));
  EXPECT_EQ(read_text(work() / "out" / "report.md"), told.output);
  EXPECT_THAT(read_text(work() / "out" / "trace.svg"), HasSubstr("class=\"backward\""));
  const std::string page = read_text(work() / "out" / "index.html");
  EXPECT_THAT(page, HasSubstr("<td class=\"\">fashion_cnn</td>"));
  EXPECT_THAT(page, HasSubstr("data-figure=\"timeline/0\""));
}

TEST_F(ReportCommandTest, APlanThatWasCheckedIsARun) {
  const Outcome checked =
      run("plan --check --model fashion_cnn --batch 4 --placement 0:0.0:1 --steps 3 --rounds 1 "
          "--threads-per-device 1 --oversubscribe --conv-algo direct --run deep/run");
  ASSERT_EQ(checked.status, 0) << checked.errors;
  EXPECT_THAT(checked.output, HasSubstr("millrace report deep/run"));
  const Outcome told = run("report deep/run -o out");
  ASSERT_EQ(told.status, 0) << told.errors;
  EXPECT_THAT(told.output, HasSubstr("The prediction was"));
  const std::string page = read_text(work() / "out" / "index.html");
  EXPECT_THAT(page, HasSubstr("Timeline: predicted above measured"));
  EXPECT_THAT(page, HasSubstr("href=\"../deep/run/metrics.jsonl\""));
  EXPECT_THAT(page, HasSubstr("<caption>Environment"));
  expect_refusal("plan --model fashion_cnn --batch 4 --run other",
                 "--run has no effect without --check");
  expect_refusal("plan --model fashion_cnn --batch 4 --check --auto", "--plan plan.json");
  expect_refusal("plan --model fashion_cnn --batch 4 --predict --cluster here", "--plan plan.json");
  write_text(work() / "file", "");
  expect_refusal("plan --check --model fashion_cnn --batch 4 --run file/x", "file/x");
}

TEST_F(ReportCommandTest, BadUsageIsOneSentence) {
  write_text(work() / "s.json", R"({"model": "m", "devices": []})");
  expect_refusal("report s.json -o out --steps 3", "without a file of --trace");
  write_text(work() / "odd.json", "{\"a\": 1}");
  expect_refusal("report", "needs a file");
  expect_refusal("report odd.json", "-o is missing");
  expect_refusal("report odd.json -o out", "neither a summary, a plan, metrics nor a trace");
  expect_refusal("report absent.json -o out", "absent.json");
  expect_refusal("report odd.json -o out --steps 0", "--steps");
  expect_refusal("report odd.json -o odd.json", "odd.json");
  std::filesystem::create_directory(work() / "empty");
  expect_refusal("report empty -o out", "has no file of --summary, --metrics or --trace");
  write_text(work() / "cut.json", "{\"model\": \"vg");
  expect_refusal("report cut.json -o out", "is not JSON: mistake at byte");
  expect_refusal("report /dev/zero -o out", "is not a file");
}

}  // namespace
}  // namespace millrace::cli
