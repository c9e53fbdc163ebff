// Checkpoints of a margin head: shards, other numbers of devices, merging and splitting.
#include <cmath>

#include "program.h"

namespace millrace::cli {
namespace {

class HeadCheckpointTest : public ProgramTest {
 protected:
  // Twelve samples a step, however many devices there are.
  Outcome train(const std::string& head, int devices, const std::string& more) const {
    return run(
        fmt::format("train --model mobilefacenet --image 16 --classes 101 --threads-per-device 1 "
                    "--oversubscribe --conv-algo direct --quiet --devices {} --batch {} --head "
                    "arcface {} {} --lr {}",
                    devices, 12 / devices, head, more, rate_));
  }

  void must_train(const std::string& head, int devices, const std::string& more) const {
    const Outcome outcome = train(head, devices, more);
    ASSERT_EQ(outcome.status, 0) << outcome.errors;
  }

  double rate_ = 0.01;

  std::string bytes(const std::string& name) const { return read_text(work() / name); }
  std::vector<double> losses(const std::string& name) const {
    return Json::parse(bytes(name))["loss"].get<std::vector<double>>();
  }
  int shards(const std::string& run) const {
    int count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(work() / run / "step-00000002")) {
      count += entry.path().filename().string().starts_with("centres-") ? 1 : 0;
    }
    return count;
  }
  void copy(const std::string& from, const std::string& to) const {
    std::filesystem::copy(work() / from, work() / to, std::filesystem::copy_options::recursive);
  }
};

TEST_F(HeadCheckpointTest, AnyNumberOfDevicesReadsAnyNumberOfShards) {
  const std::string mp = "--head-parallel mp --sync-batch-norm";
  must_train(mp, 2, "--steps 2 --checkpoint run --save-weights two");
  must_train(mp, 2, "--steps 4 --summary straight");
  EXPECT_EQ(shards("run"), 2);
  for (const int devices : {1, 3}) {
    const std::string name = fmt::format("run{}", devices);
    copy("run", name);
    must_train(mp, devices, "--steps 2 --resume --save-weights same --checkpoint " + name);
    EXPECT_EQ(bytes("same"), bytes("two"));
    must_train(mp, devices, "--steps 4 --resume --summary summary --checkpoint " + name);
    const auto all = losses("straight");
    const auto last = losses("summary");
    ASSERT_EQ(last.size(), 2u);
    for (size_t i = 0; i < 2; ++i) EXPECT_NEAR(last[i], all[2 + i], 1e-4 * all[2 + i]) << devices;
  }
}

TEST_F(HeadCheckpointTest, CentresOfSixteenBitsStartAlikeOnAnyNumberOfDevices) {
  const std::string head = "--head-dtype bf16 --sync-batch-norm";
  must_train("--head-dtype bf16", 1, "--steps 1 --summary alone");
  const double alone = losses("alone").at(0);
  for (const int devices : {2, 3}) {
    must_train(head, devices, "--steps 1 --summary divided");
    EXPECT_NEAR(losses("divided").at(0), alone, 3e-6 * alone) << devices;
  }
}

TEST_F(HeadCheckpointTest, SplitAndMergedShardsResumeBitForBit) {
  for (const std::string storage : {"fp32", "bf16", "fp16"}) {
    const std::string head =
        "--head-parallel pfc --sample-rate 0.3 --optimizer adamw --head-dtype " + storage;
    must_train(head, 2, "--steps 3 --save-weights straight");
    must_train(head, 2, "--steps 2 --checkpoint run");
    ASSERT_EQ(run("ckpt split run --shards 5 --output cut").status, 0);
    EXPECT_EQ(shards("cut"), 5);
    ASSERT_EQ(run("ckpt merge cut").status, 0);
    EXPECT_EQ(shards("cut"), 1);
    ASSERT_EQ(run("ckpt split cut --shards 2").status, 0);
    for (const char* file : {"centres-00001-of-00002.safetensors", "weights.safetensors"}) {
      const std::string name = std::string("step-00000002/") + file;
      EXPECT_EQ(bytes("run/" + name), bytes("cut/" + name)) << storage;
    }
    ASSERT_EQ(run("ckpt split cut --shards 7").status, 0);
    must_train(head, 2, "--steps 3 --resume --checkpoint cut --save-weights resumed");
    EXPECT_EQ(bytes("straight"), bytes("resumed")) << storage;
    ASSERT_EQ(run("ckpt export cut exported").status, 0);
    EXPECT_EQ(bytes("straight"), bytes("exported")) << storage;
    ASSERT_EQ(run("ckpt export cut centres --centres").status, 0);
    const std::string centres = bytes("centres");
    EXPECT_EQ(centres.substr(centres.size() - 101 * 512),
              bytes("straight").substr(bytes("straight").size() - 101 * 512));
    for (const char* name : {"run", "cut"}) std::filesystem::remove_all(work() / name);
  }
}

TEST_F(HeadCheckpointTest, ExportedCentresAreLoadedInAnotherType) {
  must_train("--head-dtype bf16", 1, "--steps 1 --save-weights narrow");
  rate_ = 0;
  must_train("--head-dtype fp32", 1, "--steps 1 --load-weights narrow --save-weights wide");
  must_train("--head-dtype bf16", 1, "--steps 1 --load-weights wide --save-weights again");
  const size_t centres = 101 * 512 * 2;
  const std::string narrow = bytes("narrow"), again = bytes("again");
  EXPECT_EQ(narrow.substr(narrow.size() - centres), again.substr(again.size() - centres));
}

TEST_F(HeadCheckpointTest, MistakesAreOneSentence) {
  must_train("--head-parallel mp", 1, "--steps 2 --checkpoint run");
  expect_refusal("ckpt split run", "--shards, the number of files, is missing");
  expect_refusal("ckpt split run --shards 0", "--shards");
  expect_refusal("ckpt split run --shards -1", "--shards");
  expect_refusal("ckpt split run --shards 102", "101 classes can lie in 1 to 101");
  expect_refusal("ckpt split run --shards two", "--shards");
  expect_refusal("ckpt merge nowhere", "There is no checkpoint in 'nowhere'");
  ASSERT_EQ(run("train --model fashion_cnn --batch 2 --steps 1 --checkpoint plain").status, 0);
  expect_refusal("ckpt merge plain", "has no class centres");
  expect_refusal("ckpt export plain file --centres", "has no class centres");
  ASSERT_EQ(run("ckpt split run --shards 2").status, 0);
  const std::string path = "run/step-00000002";
  const Json good = Json::parse(bytes(path + "/manifest.json"));
  const std::string first = "centres-00001-of-00002.safetensors";
  for (const Json& classes : {Json{0, 40}, Json{0, 60}, Json{1, 50}, Json{0}, Json("x"),
                              Json{50, 0}, Json{0, -1}, Json{0, 1e30}}) {
    Json bad = good;
    bad["files"][first]["classes"] = classes;
    write_text(work() / path / "manifest.json", bad.dump());
    expect_refusal("ckpt merge " + path, "manifest.json'");
  }
  Json bad = good;
  bad["files"].erase(first);
  write_text(work() / path / "manifest.json", bad.dump());
  expect_refusal("ckpt merge " + path, "manifest.json'");
  bad = good;  // ranges that fit each other but not the files
  bad["files"][first]["classes"] = {0, 40};
  bad["files"]["centres-00002-of-00002.safetensors"]["classes"] = {40, 101};
  write_text(work() / path / "manifest.json", bad.dump());
  expect_refusal("ckpt merge " + path, "but its classes are 0 to 40");
}

}  // namespace
}  // namespace millrace::cli
