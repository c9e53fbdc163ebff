#include "report/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "report/timeline.h"
#include "report/timeline_svg.h"
#include "runtime/trace_file.h"
#include "simulated_trace.h"

namespace millrace::report {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

int64_t count(const std::string& text, const std::string& part) {
  int64_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

class ReportTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::path(::testing::TempDir()) / "report-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string message_of(const std::string& name) const {
    try {
      read_runs(directory_ / name);
    } catch (const InputError& error) {
      return error.what();
    }
    return "no error";
  }

  std::filesystem::path directory_;
};

TEST(Timeline, BubblesOfFlushedStepsFollowTheFormulas) {
  for (const int stages : {2, 4, 8}) {
    for (const int64_t m : {8, 16}) {
      const runtime::TraceLog log =
          simulated_trace({.stages = stages, .micro_batches = m, .steps = 4});
      const TimeReport report = time_report(log, steady_window(log));
      EXPECT_EQ(report.window.steps, 3);
      EXPECT_EQ(report.window.end - report.window.begin, 3 * 3 * (m + stages - 1) * 1'000'000);
      const double p = stages;
      const auto micro_batches = static_cast<double>(m);
      EXPECT_NEAR(report.bubble_of_total(), (p - 1) / (micro_batches + p - 1), 1e-9);
      EXPECT_NEAR(report.bubble_of_ideal(), (p - 1) / micro_batches, 1e-9);
    }
  }
}

TEST(Timeline, TimeIsDividedByCategoryAndCauseWithoutCountingTwice) {
  runtime::TraceLog log;
  log.devices = {{0, 0, 0}};
  log.events = {{0, runtime::TraceCategory::forward, "f", 0, 100, 200},
                {0, runtime::TraceCategory::forward, "inner", 0, 120, 150},
                {0, runtime::TraceCategory::communication, "send", 0, 150, 400},
                {0, runtime::TraceCategory::wait, "gradients", -1, 200, 300},
                {0, runtime::TraceCategory::wait, "data", -1, 350, 450},
                {0, runtime::TraceCategory::backward, "b", 0, 300, 350}};
  const TimeReport report = time_report(log, {100, 400, 0});
  ASSERT_EQ(report.devices.size(), 1u);
  const DeviceTime& device = report.devices[0];
  EXPECT_THAT(device.spent, ElementsAre(100, 50, 0, 250, 150, 0));
  EXPECT_EQ(device.busy, 150);
  EXPECT_EQ(device.waits.at("gradients"), 100);
  EXPECT_EQ(device.waits.at("data"), 50);
  EXPECT_DOUBLE_EQ(report.bubble_of_total(), 0.5);
  EXPECT_DOUBLE_EQ(report.bubble_of_ideal(), 1.0);
}

TEST(Timeline, StepsAreFoundByTheirUpdates) {
  const runtime::TraceLog log = simulated_trace({.stages = 3, .micro_batches = 4, .steps = 5});
  const std::vector<int64_t> ends = step_ends(log);
  ASSERT_EQ(ends.size(), 5u);
  const TimeWindow two = steps_window(log, 1, 2);
  EXPECT_EQ(two.begin, ends[0]);
  EXPECT_EQ(two.end, ends[2]);
  // Replicas in turn update less often than the stages behind them.
  const runtime::TraceLog uneven = simulated_trace({.kind = parallel::ScheduleKind::one_f_one_b,
                                                    .stages = 2,
                                                    .steps = 12,
                                                    .replicas = {3, 1},
                                                    .round_robin = true});
  const std::vector<int64_t> often = step_ends(uneven);
  ASSERT_EQ(often.size(), 12u);
  for (size_t i = 1; i < often.size(); ++i) EXPECT_EQ(often[i] - often[i - 1], 3'000'000);
  EXPECT_EQ(steps_window(log, 99, 2).end, ends[4]);
  EXPECT_EQ(steps_window(log, -1, 99).steps, 5);
  EXPECT_EQ(steps_window({}, -1, 2).end, 0);
}

TEST(Timeline, PictureHasABarPerTaskAndEscapesNames) {
  runtime::TraceLog log = simulated_trace({.stages = 2, .micro_batches = 3, .steps = 1});
  log.events.push_back(
      {0, runtime::TraceCategory::communication, "<a & \"b\">\n", -1, 10'000, 1'000'000});
  const std::string svg = timeline_svg(log, steps_window(log, 0, 1), "a <b>");
  EXPECT_EQ(count(svg, "<rect class=\"forward\""), 6 + 1);  // and the legend's
  EXPECT_EQ(count(svg, "<rect class=\"backward\""), 6 + 1);
  EXPECT_THAT(svg, HasSubstr("&lt;a &amp; &quot;b&quot;&gt;"));
  EXPECT_THAT(svg, Not(HasSubstr("<a &")));
  EXPECT_THAT(svg, HasSubstr("stage 1 · 0:1"));
  EXPECT_THAT(svg, HasSubstr("prefers-color-scheme: dark"));
  EXPECT_EQ(count(svg, "<text"), count(svg, "</text>"));
  EXPECT_NO_THROW(timeline_svg({}, {}, ""));
}

TEST_F(ReportTest, WritesTablesAndPicturesOfADirectory) {
  runtime::write_trace(directory_ / "trace.json",
                       simulated_trace({.stages = 4, .micro_batches = 8, .steps = 4}));
  Json run;
  run["model"] = "vgg|16";
  run["global_batch"] = 28;
  run["seconds_per_step"]["median"] = 1.25;
  run["loss"] = {6.9, 6.5};
  run["devices"] = Json::array();
  run["devices"].push_back({{"id", "0:0"},
                            {"stage", 0},
                            {"peak_bytes", 3 << 20},
                            {"breakdown", {{"weights", 1 << 20}, {"gradients", -5}}}});
  write_text(directory_ / "run.json", run.dump());
  write_text(directory_ / "other.json", "{\"something\": 1}");
  const std::string text =
      write_report(read_runs(directory_), {.directory = directory_ / "out" / "deep"});
  EXPECT_THAT(text, HasSubstr("vgg\\|16"));
  EXPECT_THAT(text, HasSubstr("| 0:0 | 0 | 3.00 MiB | 1.00 MiB | – |"));
  EXPECT_THAT(text, HasSubstr("share of all time (as (p-1)/(m+p-1)): 27.3 %"));
  EXPECT_THAT(text, HasSubstr("relative to the work (as (p-1)/m): 37.5 %"));
  EXPECT_THAT(text, HasSubstr("| activations |"));
  EXPECT_THAT(text, HasSubstr("| gradients |"));
  EXPECT_THAT(read_text(directory_ / "out" / "deep" / "index.html"),
              HasSubstr("<a href=\"../../run.json\">run.json</a>"));
  EXPECT_EQ(read_text(directory_ / "out" / "deep" / "report.md"), text);
  EXPECT_THAT(read_text(directory_ / "out" / "deep" / "trace.svg"), HasSubstr("</svg>"));
}

TEST_F(ReportTest, AnyBytesGiveASentence) {
  EXPECT_THAT(message_of("missing.json"), HasSubstr("missing.json"));
  EXPECT_THAT(message_of(""), HasSubstr("has no file of summary, metrics or trace"));
  const auto message = [&](const std::string& text) {
    write_text(directory_ / "x.json", text);
    return message_of("x.json");
  };
  EXPECT_THAT(message("not json"), HasSubstr("is not JSON"));
  EXPECT_THAT(message("{}"), HasSubstr("neither a summary, a plan, metrics nor a trace"));
  EXPECT_THAT(message("{\"devices\": 3}"), HasSubstr("neither"));
  EXPECT_THAT(message("{\"traceEvents\": [7]}"), HasSubstr("event 0"));
  EXPECT_THAT(message(std::string(100'000, '[')), HasSubstr("event 0 is not an object"));
  EXPECT_THAT(message("{\"traceEvents\": ["), HasSubstr("is not JSON"));
  EXPECT_THAT(message(std::string("\x7f\x45\x4c\x46\0\0", 6)), HasSubstr("mistake at byte 1"));
  write_text(directory_ / "x.jsonl", "\xff\xfe garbage\n");
  EXPECT_THAT(message_of("x.jsonl"), HasSubstr("no line of it is a JSON object"));
  std::filesystem::remove(directory_ / "x.jsonl");
  // A summary with anything in it can be described.
  for (const std::string text :
       {R"({"devices": [1, null, {"id": [1], "breakdown": 4, "peak_bytes": 1e99}], "loss": 5})",
        R"({"devices": [], "model": {"a": []}, "seconds_per_step": 3, "loss": []})"}) {
    EXPECT_EQ(message(text), "no error");
    EXPECT_NO_THROW(describe_summary(read_runs(directory_ / "x.json").runs.at(0).files.at(0)));
  }
}

}  // namespace
}  // namespace millrace::report
