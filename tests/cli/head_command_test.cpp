#include <cmath>

#include "program.h"

namespace millrace::cli {
namespace {

class HeadCommandTest : public ProgramTest {
 protected:
  Json read_json(const std::string& name) const { return Json::parse(read_text(work() / name)); }
};

constexpr const char* kTinyTraining =
    "train --model iresnet18 --image 32 --batch 4 --lr 0.01 --threads-per-device 1 "
    "--conv-algo direct --classes 300 ";

TEST_F(HeadCommandTest, MistakesAreOneSentence) {
  const std::string train = std::string(kTinyTraining) + "--steps 1 ";
  expect_refusal(train + "--head arcfac", "did you mean 'arcface'");
  expect_refusal(train + "--head arcface --margin x", "--margin is 'x'");
  expect_refusal(train + "--head arcface --margin 1,2", "--head arcface takes one or three");
  expect_refusal(train + "--head combined", "--head combined needs --margin");
  expect_refusal(train + "--head softmax --margin 0.1", "has no margin");
  expect_refusal(train + "--head arcface --scale 0", "--scale is 0");
  expect_refusal(train + "--head arcface --head-parallel pfc --sample-rate 0",
                 "--sample-rate is 0");
  expect_refusal(train + "--head arcface --head-dtype int8", "--head-dtype is 'int8'");
  expect_refusal(train + "--head arcface --head-parallel pfc --head-momentum lasy",
                 "did you mean 'lazy'");
  expect_refusal(
      train + "--head arcface --head-parallel pfc --head-momentum none --optimizer adamw",
      "--head-momentum none");
  expect_refusal(train + "--head arcface --eval-data synthetic", "--eval-verification");
  expect_refusal("train --model resnet18 --image 32 --batch 2 --steps 1 --head arcface",
                 "gives no embeddings");
  expect_refusal("bench head --classes 10,x", "--classes has 'x'");
  expect_refusal("bench head --classes 0", "--classes has 0");
  expect_refusal("bench head --modes mp,mq", "--modes has 'mq'");
  expect_refusal("bench head --classes 10 --sample-rate 2", "--sample-rate is 2");
  expect_refusal("bench head --classes 10 --peer", "--peer-script names");
}

TEST_F(HeadCommandTest, TrainsWithEveryHead) {
  for (const char* head :
       {"softmax", "arcface --head-parallel pfc --sample-rate 0.1", "cosface --head-dtype bf16",
        "combined --margin 1,0.3,0.2 --head-gradient plain --optimizer adamw"}) {
    const Outcome outcome = run(std::string(kTinyTraining) + "--summary summary.json --metrics " +
                                "metrics.jsonl --steps 3 --head " + head);
    ASSERT_EQ(outcome.status, 0) << head << "\n" << outcome.errors;
    const Json summary = read_json("summary.json");
    ASSERT_EQ(summary["loss"].size(), 3u);
    for (const Json& loss : summary["loss"]) EXPECT_GE(loss.get<double>(), 0);
    const std::string metrics = read_text(work() / "metrics.jsonl");
    EXPECT_NE(metrics.find("\"top1\""), std::string::npos);
    EXPECT_EQ(metrics.find("top5"), std::string::npos);
  }
}

TEST_F(HeadCommandTest, ResumesBitForBitAndOnlyWithTheSameHead) {
  const std::string head =
      "--head arcface --head-parallel pfc --sample-rate 0.2 --head-dtype bf16 ";
  const std::string train = std::string(kTinyTraining) + head;
  ASSERT_EQ(run(train + "--steps 3 --save-weights whole.safetensors").status, 0);
  ASSERT_EQ(run(train + "--steps 2 --checkpoint run").status, 0);
  const Outcome outcome =
      run(train + "--steps 3 --checkpoint run --resume --save-weights resumed.safetensors");
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_EQ(read_text(work() / "whole.safetensors"), read_text(work() / "resumed.safetensors"));
  const Outcome other =
      run(std::string(kTinyTraining) + "--steps 3 --head cosface --checkpoint run --resume");
  EXPECT_EQ(other.status, 2);
  EXPECT_NE(other.errors.find("--head is"), std::string::npos) << other.errors;
}

TEST_F(HeadCommandTest, BenchGivesARowForEachSizeAndMode) {
  for (const char* storage : {"fp32", "bf16"}) {
    const Outcome outcome =
        run(std::string("bench head --classes 2000,3000 --modes dp,mp,pfc --batch 8 --dimension 16 "
                        "--steps 2 --threads 1 --summary rows.json --head-dtype ") +
            storage);
    ASSERT_EQ(outcome.status, 0) << outcome.errors;
    const Json rows = read_json("rows.json");
    ASSERT_EQ(rows.size(), 6u);
    for (size_t i = 0; i < rows.size(); ++i) {
      EXPECT_EQ(rows[i]["classes"], i < 3 ? 2000 : 3000);
      EXPECT_EQ(rows[i]["mode"], i % 3 == 0 ? "dp" : i % 3 == 1 ? "mp" : "pfc");
      EXPECT_GT(rows[i]["samples_per_second"].get<double>(), 0);
      EXPECT_GT(rows[i]["process_peak_rss_bytes"].get<int64_t>(), 0);
    }
    const int64_t bytes = std::string(storage) == "fp32" ? 4 : 2;
    EXPECT_GE(rows[5]["peak_bytes"].get<int64_t>(), 2 * bytes * 3000 * 16);
    EXPECT_LT(rows[5]["peak_bytes"].get<int64_t>(), 2 * bytes * 3000 * 16 + (1 << 20));
  }
}

TEST_F(HeadCommandTest, BenchMeasuresPyTorchBeside) {
  const Outcome outcome =
      run("bench head --classes 500 --modes mp,pfc --batch 4 --dimension 8 --steps 1 --threads 1 "
          "--summary rows.json --peer --peer-script " +
          (std::filesystem::path(MILLRACE_TEST_DATA) / "../../bench/peer_partial_fc.py").string());
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  for (const Json& row : read_json("rows.json")) {
    const double ratio =
        row["samples_per_second"].get<double>() / row["peer_samples_per_second"].get<double>();
    EXPECT_NEAR(row["speed_ratio"].get<double>(), ratio, 1e-6 * ratio);
    EXPECT_GT(row["peer_peak_rss_bytes"].get<int64_t>(), 50 << 20);
  }
}

}  // namespace
}  // namespace millrace::cli
