#include "report/page.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/file.h"
#include "report/page_curves.h"
#include "report/page_trace.h"
#include "report/published_section.h"
#include "report/tables.h"
#include "runtime/trace_file.h"
#include "simulated_trace.h"

namespace millrace::report {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class PageTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::path(::testing::TempDir()) / "page-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((directory_ / name).parent_path());
    write_text(directory_ / name, text);
  }

  static std::string page_of(const RunSet& set) {
    std::vector<RunFacts> facts;
    for (const report::Run& run : set.runs) facts.push_back(facts_of(run));
    return report_page(set, facts, {});
  }

  std::string page() const { return page_of(read_runs(directory_)); }

  // The data that the page carries.
  static Json data_of(const std::string& page) {
    const std::string start = "<script type=\"application/json\" id=\"data\">";
    const size_t begin = page.find(start) + start.size();
    return Json::parse(page.substr(begin, page.find("</script>", begin) - begin));
  }

  std::filesystem::path directory_;
};

Json summary(const std::string& model, int devices, double rate) {
  Json json = {{"model", model}, {"samples_per_second", rate}, {"steps", 3}, {"loss", {3, 2, 1}}};
  json["seconds_per_step"]["median"] = 8 / rate;
  json["devices"] = Json::array();
  for (int i = 0; i < devices; ++i) {
    json["devices"].push_back({{"id", "0:" + std::to_string(i)},
                               {"stage", i},
                               {"peak_bytes", 1000},
                               {"breakdown", {{"weights", 600}, {"activations", 400}}}});
  }
  return json;
}

// What eval --confusion --summary writes.
Json evaluation(const std::string& picture) {
  return Json::parse(R"({"samples": 5, "top1": 0.6, "model": "resnet18", "devices": [],
    "confusion": {"classes": [{"name": "cat", "samples": 3, "precision": 0.5, "recall": 0.3333},
                              {"name": "<b>", "samples": 2, "precision": 1.0, "recall": 1.0}],
                  "matrix": [[1, 2], [0, 2]]},
    "wrong": [{"name": "cat", "taken_for": "<b>", "share": 0.9, "file": "a/1.jpg", "picture": ")" +
                     picture + "\"}]}");
}

TEST_F(PageTest, AnEvaluationShowsConfusionAndWrongPictures) {
  write("eval.json", evaluation("data:image/png;base64,iVBORw0KGgo=").dump());
  write("summary.json", R"({"model": "resnet18", "steps": 1, "devices": [], "loss": [1.0]})");
  const std::string text = page();
  EXPECT_THAT(
      text,
      HasSubstr("<img src=\"data:image/png;base64,iVBORw0KGgo=\" alt=\"cat taken for &lt;b&gt;\""));
  EXPECT_THAT(text, HasSubstr("title=\"2 of 3 cat taken for &lt;b&gt;\">2</td>"));
  EXPECT_THAT(text, HasSubstr("<td class=\"n\">66.7 %</td>"));
  EXPECT_THAT(text, HasSubstr("The last evaluation had 60.0 % right."));
  EXPECT_THAT(text, Not(HasSubstr("<b> ")));
}

TEST_F(PageTest, LossesAndPairsAreNoShares) {
  write("metrics.jsonl",
        "{\"kind\": \"evaluation\", \"step\": 1, \"pairs\": 600, \"top1\": 0.5, \"balanced_loss\": "
        "1.25}\n"
        "{\"kind\": \"step\", \"step\": 1, \"loss\": 1.0}\n");
  EXPECT_THAT(page(), HasSubstr("50.00 %"));
  EXPECT_THAT(page(), Not(HasSubstr("60000.00 %")));
  EXPECT_THAT(page(), Not(HasSubstr("125.00 %")));
}

TEST_F(PageTest, OnlyPicturesAreShownAsPictures) {
  for (const char* picture : {"javascript:alert(1)", "data:text/html;base64,AAAA",
                              "data:image/png;base64,A' onload='x", "https://example.com/a.png"}) {
    write("eval.json", evaluation(picture).dump());
    EXPECT_THAT(page(), Not(HasSubstr("<img"))) << picture;
  }
  write("eval.json",
        R"({"devices": [], "confusion": {"matrix": [[1, "x"], 3], "classes": [{}, 7]}})");
  EXPECT_THAT(page(), HasSubstr("Confusion"));
}

TEST_F(PageTest, CarriesWhatTheFilesSayAndNothingFromElsewhere) {
  write("summary.json", summary("</script><b>m</b>", 2, 16).dump());
  write("metrics.jsonl",
        "{\"kind\":\"step\",\"step\":1,\"loss\":3,\"samples_per_second\":10,\"loss_scale\":8,"
        "\"skipped\":true}\n"
        "{\"kind\":\"step\",\"step\":2,\"loss\":null,\"samples_per_second\":20,"
        "\"loss_scale\":4}\n"
        "{\"kind\":\"evaluation\",\"step\":2,\"loss\":2.5,\"top1\":0.5}\n{\"kind\":");
  runtime::write_trace(directory_ / "trace.json",
                       simulated_trace({.stages = 2, .micro_batches = 4, .steps = 3}));
  Json plan = summary("m", 2, 16);
  plan.erase("loss");
  plan["predicted_seconds_per_step"] = 0.4;
  plan["predicted_samples_per_second"] = 20;
  write("plan.json", plan.dump());
  const std::string text = page();
  EXPECT_THAT(text, Not(HasSubstr("<b>m</b>")));
  EXPECT_THAT(text, HasSubstr("&lt;b&gt;m"));
  EXPECT_THAT(text, HasSubstr("metrics.jsonl': line 4 is damaged and left out."));
  EXPECT_THAT(text, HasSubstr("+25.0 %"));  // 20 predicted, 16 measured
  for (const char* outside : {"http://", "https://", "src=", "@import", "url("}) {
    std::string rest = text;
    const size_t space = rest.find("http://www.w3.org/2000/svg");
    rest.erase(space, 26);
    EXPECT_THAT(rest, Not(HasSubstr(outside)));
  }
  const Json data = data_of(text);
  const Json& run = data["runs"][0];
  EXPECT_EQ(run["metrics"]["steps"], Json({1, 2}));
  EXPECT_EQ(run["metrics"]["loss"], Json({3.0, nullptr}));
  EXPECT_EQ(run["evaluations"][0]["loss"], 2.5);
  EXPECT_THAT(text, HasSubstr("data-figure=\"loss_scale/0\""));
  EXPECT_THAT(text, HasSubstr("<dt>steps skipped</dt><dd>1</dd>"));
  EXPECT_EQ(run["memory"]["rows"][1]["parts"][3], 400);
  EXPECT_EQ(data["timelines"][0]["devices"].size(), 2u);
  EXPECT_EQ(data["timelines"][0]["events"].size(),
            simulated_trace({.stages = 2, .micro_batches = 4, .steps = 3}).events.size());
}

TEST_F(PageTest, ASuiteComparesItsRuns) {
  write("suite/a/s.json", summary("m", 1, 10).dump());
  write("suite/b/s.json", summary("m", 4, 25).dump());
  write("suite/c/s.json", summary("other", 2, 7).dump());
  write("suite/c/broken.json", "{");
  write("suite/d/unrelated.json", "{}");
  const RunSet set = read_runs(directory_ / "suite");
  ASSERT_EQ(set.runs.size(), 3u);
  ASSERT_EQ(set.notes.size(), 1u);
  EXPECT_THAT(set.notes[0], HasSubstr("broken.json"));
  std::vector<RunFacts> facts;
  for (const report::Run& run : set.runs) facts.push_back(facts_of(run));
  const Table table = run_table(facts);
  EXPECT_EQ(table.rows[0].back(), "1.00");
  EXPECT_EQ(table.rows[1].back(), "2.50");
  EXPECT_EQ(table.rows[2].back(), "1.00");
  EXPECT_THAT(table.bar_shares, ElementsAre(0.4, 1.0, 0.28));
  EXPECT_THAT(page_of(set), HasSubstr("--share:40.0%"));
}

TEST_F(PageTest, AnEpochIsThatOfTheData) {
  Json own = summary("m", 1, 10);
  own["global_batch"] = 16;
  own["steps_per_epoch"] = 5;
  write("own/s.json", own.dump());
  write("random/s.json", summary("m", 1, 10).dump());
  std::vector<RunFacts> facts;
  const RunSet set = read_runs(directory_);
  for (const report::Run& run : set.runs) facts.push_back(facts_of(run));
  const Table table = run_table(facts);
  ASSERT_EQ(table.head[11], "s/epoch");
  EXPECT_EQ(table.rows[0][11], "8");
  EXPECT_EQ(table.rows[1][11], "128117");
}

TEST_F(PageTest, WhatIsLeftOfARunIsShown) {
  write("metrics.jsonl", "{\"kind\":\"step\",\"step\":7,\"loss\":3,\"seconds\":2}\n");
  EXPECT_THAT(page(), HasSubstr("A run: 1 step, loss from 3 to 3; it did not run to its end."));
  write("summary.json",
        "{\"devices\": [1, {}, {\"stage\": 1e9, \"peak_bytes\": 5}], \"loss\": [\"a\"]}");
  write("trace.json", "[]");
  EXPECT_THAT(page(), HasSubstr("data-figure=\"timeline/0\""));
  for (const char* name : {"metrics.jsonl", "summary.json", "trace.json"}) write(name, "\xff{");
  EXPECT_THROW(read_runs(directory_), InputError);
}

TEST(PageTrace, MemoryFollowsTheMicroBatchesUnderWay) {
  runtime::TraceLog log;
  log.devices = {{0, 0, 0}};
  log.events = {{0, runtime::TraceCategory::forward, "f", 0, 0, 10},
                {0, runtime::TraceCategory::forward, "f", 1, 10, 20},
                {0, runtime::TraceCategory::backward, "b", 0, 20, 40},
                {0, runtime::TraceCategory::backward, "b", 1, 40, 60}};
  const Json curves = memory_over_time(log, {0, 60, 1}, summary("m", 1, 1));
  ASSERT_EQ(curves.size(), 1u);
  std::vector<double> sizes;
  for (const Json& point : curves[0]["points"]) sizes.push_back(point[1].get<double>());
  EXPECT_THAT(sizes, ElementsAre(600, 800, 1000, 800, 600, 600));
  EXPECT_TRUE(memory_over_time(log, {0, 60, 1}, Json()).is_null());
}

TEST(PageTrace, ActivationsStayUntilTheLastPieceOfTheBackwardPass) {
  runtime::TraceLog log;
  log.devices = {{0, 0, 0}};
  log.events = {{0, runtime::TraceCategory::forward, "f", 7, 0, 10},
                {0, runtime::TraceCategory::backward, "b", 7, 10, 20},
                {0, runtime::TraceCategory::update, "u", 7, 20, 25},
                {0, runtime::TraceCategory::backward, "b", 7, 25, 40},
                {0, runtime::TraceCategory::forward, "f", 7, 50, 60},
                {0, runtime::TraceCategory::backward, "b", 7, 60, 80}};
  const Json curves = memory_over_time(log, {0, 90, 2}, summary("m", 1, 1));
  EXPECT_EQ(curves[0]["points"],
            Json::parse("[[0.0,600.0],[0.0,1000.0],[4e-08,600.0],[5e-08,1000.0],"
                        "[8e-08,600.0],[9e-08,600.0]]"));
}

TEST(PageTrace, LargeTracesAreSharesOfTimeButForTheStepsShown) {
  runtime::TraceLog log;
  for (int i = 0; i < 300; ++i) log.devices.push_back({0, i, 0});
  for (int i = 0; i < 200000; ++i) {
    const bool computes = i < 100000;  // and waits in the second half
    const auto category = computes ? runtime::TraceCategory::forward : runtime::TraceCategory::wait;
    log.events.push_back({i % 2, category, "f", 0, i / 2 * 100LL, i / 2 * 100LL + 50});
  }
  const PageTimeline timeline = page_timeline({{&log, {4'000'000, 4'000'400, 1}, ""}}, 1000);
  const Json& devices = timeline.json["devices"];
  EXPECT_EQ(devices.size(), kMostPageDevices);
  EXPECT_EQ(timeline.json["events"].size(), 1000u);
  EXPECT_THAT(timeline.note, HasSubstr("256 of 300 devices"));
  EXPECT_THAT(timeline.note, HasSubstr("200000 events, too many for a page"));
  const double from = devices[0]["detail"][0].get<double>();
  const double to = devices[0]["detail"][1].get<double>();
  EXPECT_LT(from, 4000);
  EXPECT_GT(to, 4000.4);
  EXPECT_NEAR(to - from, 50, 1);  // 1000 events of two devices, one every 100 ns
  for (const Json& event : timeline.json["events"]) {
    EXPECT_TRUE(event[4] >= from && event[4] <= to);
  }
  const Json& bins = devices[1]["bins"];
  const size_t count = bins.size() / runtime::kTraceCategories;
  EXPECT_LE(count * devices.size(), kMostPageBins);
  EXPECT_NEAR(bins[0].get<int>(), 50, 1);  // forward, of the first
  EXPECT_EQ(bins[4].get<int>(), 0);        // wait
  EXPECT_EQ(bins[(count - 1) * runtime::kTraceCategories].get<int>(), 0);
  EXPECT_NEAR(bins[(count - 1) * runtime::kTraceCategories + 4].get<int>(), 50, 1);
}

TEST(PageTrace, PartsHaveOneScaleAndBeginTheirStepsTogether) {
  runtime::TraceLog measured, simulated;
  measured.devices = simulated.devices = {{0, 0, 0}};
  measured.events = {{0, runtime::TraceCategory::forward, "f", 0, 50'000, 51'000},
                     {0, runtime::TraceCategory::forward, "f", 1, 70'000, 73'000}};
  simulated.events = {{0, runtime::TraceCategory::forward, "f", 0, 0, 1'000},
                      {0, runtime::TraceCategory::forward, "f", 1, 5'000, 7'000}};
  const Json json = page_timeline({{&simulated, {5'000, 7'000, 1}, "predicted"},
                                   {&measured, {70'000, 73'000, 1}, "measured"}},
                                  100)
                        .json;
  EXPECT_EQ(json["devices"][0]["group"], "predicted");
  EXPECT_EQ(json["devices"][1]["group"], "measured");
  std::vector<double> begins;
  for (const Json& event : json["events"]) begins.push_back(event[4].get<double>());
  EXPECT_THAT(begins, ElementsAre(15, 20, 0, 20));
  EXPECT_EQ(json["window"], Json({20.0, 23.0}));
  EXPECT_EQ(json["end"], 23.0);
}

TEST_F(PageTest, APredictionAndItsRunAreShownTogether) {
  Json plan = summary("m", 2, 16);
  plan.erase("loss");
  plan.erase("samples_per_second");
  plan["predicted_step_seconds"] = 0.4;
  plan["predicted_samples_per_second"] = 20;
  plan["error_estimate"] = 0.05;
  plan["measured_step_seconds"] = 0.5;
  plan["measured_samples_per_second"] = 16;
  plan["process_rss_bytes"] = 11 << 20;
  plan["measured_rss_bytes"] = 10 << 20;
  for (Json& device : plan["devices"]) device["measured_peak_bytes"] = 1000;
  write("plan.json", plan.dump());
  const runtime::TraceLog log = simulated_trace({.stages = 2, .micro_batches = 4, .steps = 3});
  runtime::write_trace(directory_ / "a.json", log);
  EXPECT_THAT(page(), HasSubstr("<h3>Timeline</h3>"));
  runtime::write_trace(directory_ / "predicted.json", log, true);
  const std::string text = page();
  EXPECT_THAT(text, HasSubstr("m on 2 devices in 2 stages (): 16 samples/s measured."));
  EXPECT_THAT(text, HasSubstr("The prediction was 20 samples/s (+25.0 %)."));
  EXPECT_THAT(text, HasSubstr("expected to be off by about 5.0 %"));
  EXPECT_THAT(text, HasSubstr("memory of the process"));
  EXPECT_THAT(text, HasSubstr("memory of device 0:1, stage 1"));
  EXPECT_THAT(text, HasSubstr("Timeline: predicted above measured"));
  EXPECT_THAT(text, HasSubstr("Where each device's time went, predicted"));
  const Json data = data_of(text);
  ASSERT_EQ(data["timelines"].size(), 1u);
  EXPECT_EQ(data["timelines"][0]["devices"].size(), 4u);
}

TEST_F(PageTest, ManyStepsAreMeansWithTheirRange) {
  std::string lines;
  for (int i = 1; i <= 10000; ++i) {
    lines += fmt::format("{{\"kind\":\"step\",\"step\":{},\"loss\":{}}}\n", i, i % 4);
  }
  write("metrics.jsonl", lines);
  const Json metrics = data_of(page())["runs"][0]["metrics"];
  EXPECT_EQ(metrics["steps"].size(), kMostPagePoints);
  EXPECT_EQ(metrics["steps"].back(), 10000);
  EXPECT_EQ(metrics["loss"][7], 1.5);
  EXPECT_EQ(metrics["low"]["loss"][7], 0);
  EXPECT_EQ(metrics["high"]["loss"][7], 3);
  EXPECT_THAT(page(), HasSubstr("Each point is the mean of 4 steps, the band their range."));
}

TEST_F(PageTest, DamagedLinesAreLeftOutAndCounted) {
  const std::string good = "{\"kind\":\"step\",\"step\":1,\"loss\":3}\n";
  write("metrics.jsonl", good + "\xff\xfe{\n" + good + "[1]\n" + good);
  const RunSet set = read_runs(directory_);
  ASSERT_EQ(set.notes.size(), 1u);
  EXPECT_EQ(set.notes[0],
            "'metrics.jsonl': 2 lines are damaged and left out, the first is line 2.");
  EXPECT_EQ(set.runs[0].files[0].metrics.size(), 3u);
}

TEST(Markup, LinksAreRelativeToThePage) {
  const Source source = source_of("runs/a b/su#m.json", "runs/out/deep");
  EXPECT_EQ(source.name, "su#m.json");
  EXPECT_EQ(source.address, "../../a%20b/su%23m.json");
  EXPECT_EQ(links_to({source, {"x", "y"}}),
            "<span class=\"source\">from <a href=\"../../a%20b/su%23m.json\">su#m.json</a>, "
            "<a href=\"y\">x</a></span>");
}

TEST(Markup, TablesEscapeTheirTextAndAlignNumbers) {
  Table table;
  table.caption = "a < b";
  table.head = {"name", "size", "text"};
  table.rows = {{"x|y", "1.5 GiB", "0:0.0:1"}, {"<i>", "–", "8 × 28"}};
  const std::string html = to_html(table);
  EXPECT_THAT(html, HasSubstr("<td class=\"n\">1.5 GiB</td><td class=\"\">0:0.0:1</td>"));
  EXPECT_THAT(html, HasSubstr("&lt;i&gt;"));
  EXPECT_THAT(html, HasSubstr("<caption>a &lt; b</caption>"));
  EXPECT_THAT(to_markdown(table), HasSubstr("|---|---:|---|"));
  EXPECT_THAT(to_markdown(table), HasSubstr("| x\\|y | 1.5 GiB |"));
}

TEST(Published, AnyJsonBecomesATable) {
  const Json comparison = Json::parse(R"({"rows": [
      {"system": "oneflow", "model": "vgg16", "configuration": "8 × 28", "fitted": true,
       "published_samples_per_second": 692, "predicted_samples_per_second": 727, "error": -0.048,
       "published_memory_mib": [7885, 4499], "predicted_fits": false, "published_fits": true,
       "exact_memory_mib": [3480, 2808], "run_note": "needs 9 GiB"}, 7, null, {"error": "x"}],
      "errors": {"unseen": {"rows": 15, "median": 0.028, "worst": 0.09}, "odd": 3}})");
  const std::string text = published_markdown(comparison);
  EXPECT_THAT(text, HasSubstr("| oneflow | vgg16 | 8 × 28 * | 692 | 727 | -4.8 % | 7885 / 4499 |"));
  EXPECT_THAT(text, HasSubstr("no (it does)"));
  EXPECT_THAT(text, HasSubstr("| 3480 / 2808 | needs 9 GiB |"));
  EXPECT_THAT(text, HasSubstr("| held out | time | 15 | 2.8 % | 9.0 % |"));
  EXPECT_EQ(published_points(comparison).size(), 1u);
}

}  // namespace
}  // namespace millrace::report
