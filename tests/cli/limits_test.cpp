// What the system, or somebody else, takes away from a job while it runs.
#include <gmock/gmock.h>
#include <sys/resource.h>

#include <chrono>
#include <thread>

#include "program.h"

namespace millrace::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class LimitsTest : public ProgramTest {
 protected:
  void make_pictures(int count) const {
    const Outcome outcome = run(fmt::format(
        "data synth idx:set --classes 3 --height 12 --width 12 --channels 1 --count {}", count));
    ASSERT_EQ(outcome.status, 0) << outcome.errors;
  }

  // As `ulimit` in a shell does.
  Outcome run_limited(int resource, rlim_t soft, const std::string& arguments) const {
    rlimit before = {};
    EXPECT_EQ(::getrlimit(static_cast<__rlimit_resource>(resource), &before), 0);
    const rlimit limit = {soft, before.rlim_max};
    EXPECT_EQ(::setrlimit(static_cast<__rlimit_resource>(resource), &limit), 0);
    const pid_t child = start(arguments);
    ::setrlimit(static_cast<__rlimit_resource>(resource), &before);
    return wait_for(child);
  }

  void wait_until_there(const fs::path& path) const {
    while (!fs::exists(work() / path)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  const std::string train_ =
      "train --model fashion_cnn --classes 3 --threads-per-device 1 --batch 8 --lr 0.01 --data "
      "idx:set --checkpoint run";
};

TEST_F(LimitsTest, DataThatBecomeShorterEndTheJobWithACheckpoint) {
  make_pictures(20000);
  const pid_t child = start(train_ + " --steps 1000000 --metrics m.jsonl --on-bad-record skip");
  wait_until_there("m.jsonl");
  for (const auto& entry : fs::directory_iterator(work() / "set")) {
    fs::resize_file(entry.path(), 16);
  }
  const Outcome outcome = wait_for(child);
  EXPECT_EQ(outcome.status, 2) << outcome.errors;
  EXPECT_THAT(outcome.errors, HasSubstr("cannot be read any more"));
  EXPECT_THAT(outcome.errors, HasSubstr("'set/"));
  EXPECT_EQ(run("ckpt verify run").status, 0);
}

TEST_F(LimitsTest, ADirectoryThatIsRemovedIsMadeAnew) {
  make_pictures(24);
  const pid_t child = start(train_ + " --steps 3000 --checkpoint-every 100 --keep 1");
  wait_until_there("run/step-00000100");
  fs::rename(work() / "run", work() / "away");
  const Outcome outcome = wait_for(child);
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_THAT(outcome.errors, HasSubstr("'run' was not there any more"));
  EXPECT_TRUE(fs::exists(work() / "run" / "step-00003000"));
  EXPECT_TRUE(fs::exists(work() / "run" / "job.yaml"));
  EXPECT_FALSE(fs::exists(work() / "run" / "lock"));
  EXPECT_EQ(run("ckpt verify run").status, 0);
}

TEST_F(LimitsTest, FilesThatMayNotGrowDoNotEndTheTraining) {
  make_pictures(24);
  const Outcome outcome = run_limited(RLIMIT_FSIZE, 100'000, train_ + " --steps 2");
  EXPECT_EQ(outcome.status, 1) << outcome.errors;
  EXPECT_THAT(outcome.errors, HasSubstr("File too large"));
  EXPECT_THAT(outcome.output, HasSubstr("step 2/2"));
}

TEST_F(LimitsTest, ALimitOfProcessorTimeSavesACheckpoint) {
  make_pictures(24);
  const Outcome outcome = run_limited(RLIMIT_CPU, 1, train_ + " --steps 1000000");
  EXPECT_EQ(outcome.status, 130) << outcome.errors;
  EXPECT_THAT(outcome.errors, HasSubstr("The limit of processor time (ulimit -t) is reached. "));
  EXPECT_THAT(outcome.errors, HasSubstr("saved in 'run'"));
  EXPECT_EQ(run("ckpt verify run").status, 0);
}

TEST_F(LimitsTest, AStackThatIsTooSmallIsTold) {
  const Outcome outcome = run_limited(RLIMIT_STACK, 256 << 10, "plan --model lenet5");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_EQ(outcome.errors,
            "millrace: The stack may take 256.00 KiB (ulimit -s); 1.00 MiB are needed.\n");
}

}  // namespace
}  // namespace millrace::cli
