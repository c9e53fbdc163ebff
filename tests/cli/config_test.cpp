// Flags from files: the command line wins, mistakes have a line, and a run can be repeated.
#include <gmock/gmock.h>

#include "program.h"

namespace millrace::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ConfigTest : public ProgramTest {
 protected:
  std::string printed(const std::string& flags) const {
    const Outcome outcome = run("train --print-config " + flags);
    EXPECT_EQ(outcome.status, 0) << outcome.errors;
    return outcome.output;
  }
  void write(const char* name, std::string_view text) const { write_text(work() / name, text); }
};

TEST_F(ConfigTest, FlagsWinOverFilesAndLaterFilesOverEarlier) {
  write("a.yaml", "model: resnet18\nlr: 0.3\nbatch: 8\nnesterov: true\n");
  write("b.yaml", "lr: 0.2\nlr-milestones: [30, 60]\nlr-schedule: step\nquiet: false\n");
  const std::string text = printed("--config a.yaml --config b.yaml --batch 4");
  EXPECT_THAT(text, HasSubstr("model: resnet18\n"));
  EXPECT_THAT(text, HasSubstr("lr: 0.2\n"));
  EXPECT_THAT(text, HasSubstr("batch: 4\n"));
  EXPECT_THAT(text, HasSubstr("lr-milestones: 30,60\n"));
  EXPECT_THAT(text, HasSubstr("nesterov: true\n"));
  EXPECT_THAT(text, Not(HasSubstr("quiet")));
  EXPECT_THAT(text, HasSubstr("momentum: 0.9\n"));  // a default
}

TEST_F(ConfigTest, FineTuningStandsForFlagsThatGiveWay) {
  const std::string text = printed("--fine-tune w.pth --lr-schedule constant");
  EXPECT_THAT(text, HasSubstr("load-weights: w.pth\n"));
  EXPECT_THAT(text, HasSubstr("new-layers: auto\n"));
  EXPECT_THAT(text, HasSubstr("lr: 0.005\n"));
  EXPECT_THAT(text, HasSubstr("lr-schedule: constant\n"));
  EXPECT_THAT(text, Not(HasSubstr("fine-tune")));
  EXPECT_THAT(printed("--fine-tune w.pth --optimizer adamw"), HasSubstr("lr: 0.0001\n"));
}

TEST_F(ConfigTest, MistakesNameFileAndLine) {
  write("unknown.yaml", "model: resnet18\nlearning: 0.1\nweight-decey: 1\n");
  expect_refusal("train --config unknown.yaml", "'unknown.yaml': line 2 has 'learning'");
  write("typo.yaml", "\nweight-decey: 1\n");
  expect_refusal("train --config typo.yaml",
                 "line 2 has 'weight-decey', which is no flag of "
                 "'train'; did you mean 'weight-decay'?");
  write("twice.yaml", "lr: 1\nlr: 2\n");
  expect_refusal("train --config twice.yaml", "line 2 gives --lr a second time");
  write("flag.yaml", "nesterov: 3\n");
  expect_refusal("train --config flag.yaml", "--nesterov is true or false");
  write("none.yaml", "lr:\n");
  expect_refusal("train --config none.yaml", "line 1 gives --lr no value");
  write("list.yaml", "- a\n");
  expect_refusal("train --config list.yaml", "has no 'flag: value' lines");
  write("broken.yaml", "a: [\n");
  expect_refusal("train --config broken.yaml", "'broken.yaml' is no YAML: mistake in line");
  write("itself.yaml", "config: itself.yaml\n");
  expect_refusal("train --config itself.yaml", "line 1 names another file");
  expect_refusal("train --config absent.yaml", "absent.yaml");
}

TEST_F(ConfigTest, ARunIsRepeatedBitForBit) {
  const std::string machine = "--threads-per-device 1 --conv-algo direct ";
  const Outcome first =
      run("train --model fashion_cnn --batch 4 --steps 3 --lr 0.02 --quiet "
          "--checkpoint run --save-weights a.safetensors " +
          machine);
  ASSERT_EQ(first.status, 0) << first.errors;
  const std::string kept = read_text(work() / "run" / "job.yaml");
  EXPECT_THAT(kept, HasSubstr("lr: 0.02\n"));
  EXPECT_THAT(kept, Not(HasSubstr("momentum")));
  const Outcome second =
      run("train --config run/job.yaml --checkpoint again --save-weights b.safetensors");
  ASSERT_EQ(second.status, 0) << second.errors;
  EXPECT_EQ(read_text(work() / "a.safetensors"), read_text(work() / "b.safetensors"));
}

}  // namespace
}  // namespace millrace::cli
