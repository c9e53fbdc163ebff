#include "train/metrics.h"

#include "base/text.h"
#include "support.h"

namespace millrace::train {
namespace {

class MetricsTest : public DirectoryTest {
 protected:
  std::vector<Json> lines() const {
    std::vector<Json> found;
    for (const std::string& line : split(read_text(path()), '\n')) {
      if (!line.empty()) found.push_back(Json::parse(line));
    }
    return found;
  }
  std::filesystem::path path() const { return directory_ / "metrics.jsonl"; }

  static StepReport step(int64_t number) {
    StepReport report;
    report.step = number;
    report.loss = 0.5;
    report.samples = 8;
    return report;
  }
};

TEST_F(MetricsTest, WritesOneObjectPerEvent) {
  MetricsWriter writer(path());
  EXPECT_FALSE(std::filesystem::exists(path()));
  writer.on_start({});
  writer.on_step(step(1));
  writer.on_evaluation({.step = 1, .samples = 10, .figures = {{"top1", 0.25}}});
  StepReport beside = step(2);
  beside.checkpoint_seconds = 0.125;
  writer.on_step(beside);
  writer.on_checkpoint(
      {.step = 1, .directory = "runs/step-00000001", .bytes = 9, .pause_seconds = 0.5});
  const std::vector<Json> found = lines();
  ASSERT_EQ(found.size(), 4u);
  EXPECT_EQ(found[0]["kind"], "step");
  EXPECT_EQ(found[0]["loss"], 0.5);
  EXPECT_EQ(found[1]["kind"], "evaluation");
  EXPECT_EQ(found[1]["top1"], 0.25);
  EXPECT_EQ(found[0]["checkpoint_seconds"], 0);
  EXPECT_EQ(found[2]["checkpoint_seconds"], 0.125);
  EXPECT_EQ(found[3]["directory"], "runs/step-00000001");
  EXPECT_EQ(found[3]["pause_seconds"], 0.5);
  EXPECT_EQ(writer.failure(), "");
}

TEST_F(MetricsTest, AResumedRunContinuesWhereItsCheckpointWas) {
  {
    MetricsWriter writer(path());
    writer.on_start({});
    for (int i = 1; i <= 5; ++i) writer.on_step(step(i));
  }
  write_text(path(), read_text(path()) + "{\"kind\": \"st");
  MetricsWriter writer(path());
  JobStart start;
  start.first_step = 3;
  writer.on_start(start);
  writer.on_step(step(4));
  std::vector<int64_t> steps;
  for (const Json& line : lines()) steps.push_back(line["step"].get<int64_t>());
  EXPECT_EQ(steps, (std::vector<int64_t>{1, 2, 3, 4}));
}

TEST_F(MetricsTest, AFreshRunStartsAnEmptyFile) {
  write_text(path(), "{\"step\": 1}\n");
  MetricsWriter writer(path());
  writer.on_start({});
  EXPECT_TRUE(lines().empty());
}

}  // namespace
}  // namespace millrace::train
