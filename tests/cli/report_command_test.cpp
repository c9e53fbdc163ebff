#include <gmock/gmock.h>

#include "program.h"
#include "runtime/trace_file.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

class ReportCommandTest : public ProgramTest {};

TEST_F(ReportCommandTest, TellsOfARunAndItsTrace) {
  TraceLog log;
  log.devices = {{0, 0, 0}};
  log.events = {{0, TraceCategory::forward, "forward", 0, 0, 1'000'000},
                {0, TraceCategory::wait, "gradients", -1, 1'000'000, 2'000'000},
                {0, TraceCategory::backward, "backward", 0, 2'000'000, 4'000'000}};
  write_trace(work() / "trace.json", log);
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
  EXPECT_THAT(page, HasSubstr("data-figure=\"trace/0\""));
}

TEST_F(ReportCommandTest, BadUsageIsOneSentence) {
  write_text(work() / "odd.json", "{\"a\": 1}");
  expect_refusal("report", "needs a file");
  expect_refusal("report odd.json", "-o is missing");
  expect_refusal("report odd.json -o out", "neither a summary, a plan, metrics nor a trace");
  expect_refusal("report absent.json -o out", "absent.json");
  expect_refusal("report odd.json -o out --steps 0", "--steps");
  expect_refusal("report odd.json -o odd.json", "odd.json");
}

}  // namespace
}  // namespace millrace
