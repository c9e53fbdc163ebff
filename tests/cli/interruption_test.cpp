#include <gmock/gmock.h>

#include <chrono>
#include <thread>

#include "program.h"

namespace millrace::cli {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

class InterruptionTest : public ProgramTest {
 protected:
  void SetUp() override {
    ProgramTest::SetUp();
    ASSERT_EQ(run("data synth ofrecord:set --count 40 --classes 4 --height 28 --width 28 "
                  "--channels 1")
                  .status,
              0);
  }

  // Four batches an epoch, so most steps are in the middle of one; random shifts are on.
  static std::string train(int workers) {
    return fmt::format(
        "train --model fashion_cnn --classes 4 --batch 9 --threads-per-device 1 "
        "--conv-algo direct --data ofrecord:set --steps 60 --lr 0.02 --workers {} "
        "--save-weights weights",
        workers);
  }

  std::string straight_weights() {
    const Outcome outcome = run(train(2));
    EXPECT_EQ(outcome.status, 0) << outcome.errors;
    return read_text(work() / "weights");
  }
};

TEST_F(InterruptionTest, KilledAtAnyMomentResumesBitForBit) {
  const std::string expected = straight_weights();
  const std::string job = " --checkpoint run --checkpoint-every 2 --resume";
  int kills = 0;
  for (int round = 0; round < 4; ++round) {
    std::filesystem::remove_all(work() / "run");
    std::filesystem::remove(work() / "weights");
    for (int delay = 60 + 37 * round;; delay += 50) {
      const pid_t child = start(train(1 + (delay + round) % 3) + job);
      std::this_thread::sleep_for(std::chrono::milliseconds(delay));
      ::kill(child, SIGKILL);
      const Outcome outcome = wait_for(child);
      if (outcome.status != 128 + SIGKILL) {
        EXPECT_EQ(outcome.status, 0) << outcome.errors;
        break;
      }
      ++kills;
    }
    EXPECT_TRUE(read_text(work() / "weights") == expected) << "round " << round;
  }
  EXPECT_GT(kills, 4);
}

TEST_F(InterruptionTest, SignalsFinishTheStepAndSave) {
  const std::string expected = straight_weights();
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    std::filesystem::remove_all(work() / "run");
    const pid_t child = start(train(2) + " --metrics m.jsonl --checkpoint run");
    while (!std::filesystem::exists(work() / "m.jsonl") ||
           std::filesystem::file_size(work() / "m.jsonl") < 200) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ::kill(child, signal);
    // Whoever signals a process and its group, as timeout(1) does, does not mean a second one.
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    ::kill(child, signal);
    const Outcome outcome = wait_for(child);
    EXPECT_EQ(outcome.status, 130) << outcome.errors;
    EXPECT_THAT(outcome.errors, HasSubstr("Stopping after step "));
    EXPECT_THAT(outcome.errors, EndsWith("saved in 'run': add --resume to continue.\n"));
    const Outcome resumed = run(train(1) + " --metrics m.jsonl --checkpoint run --resume");
    EXPECT_EQ(resumed.status, 0) << resumed.errors;
    EXPECT_TRUE(read_text(work() / "weights") == expected);
    EXPECT_EQ(split(read_text(work() / "m.jsonl"), '\n').size(), 60u + 2u + 1u);
    std::filesystem::remove(work() / "m.jsonl");
  }
}

// A checkpoint's record of methods counts more than what the program would choose now: with one
// method exchanged in it, the kernels of the resumed run are others, and it says so.
TEST_F(InterruptionTest, ResumedJobsComputeConvolutionsAsTheCheckpointSays) {
  const std::string job =
      "train --model fashion_cnn --classes 4 --batch 9 --threads-per-device 1 --data ofrecord:set "
      "--lr 0.02 --checkpoint run --resume --steps ";
  const auto methods_after = [&](int steps) {
    const auto path = work() / "run" / fmt::format("step-{:08}", steps) / "manifest.json";
    return Json::parse(read_text(path)).value("convolutions", Json::object());
  };
  ASSERT_EQ(run(job + "2").status, 0);
  const Json chosen = methods_after(2);
  ASSERT_FALSE(chosen.empty());
  Outcome resumed = run(job + "4");
  EXPECT_EQ(resumed.status, 0);
  EXPECT_EQ(resumed.errors.find("kernels"), std::string::npos) << resumed.errors;
  EXPECT_EQ(methods_after(4), chosen);

  const auto path = work() / "run" / "step-00000004" / "manifest.json";
  Json manifest = Json::parse(read_text(path));
  const char* other = __builtin_cpu_supports("avx512bw") ? "winograd" : "winograd_tiles";
  for (auto& [key, method] : manifest["convolutions"].items()) {
    method = method == "direct" ? other : "direct";
  }
  write_text(path, manifest.dump());
  resumed = run(job + "6");
  EXPECT_EQ(resumed.status, 0) << resumed.errors;
  EXPECT_THAT(resumed.errors, HasSubstr("kernels are not those of the checkpoint"));
  EXPECT_EQ(methods_after(6), manifest["convolutions"]);
}

}  // namespace
}  // namespace millrace::cli
