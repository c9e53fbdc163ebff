#include <gmock/gmock.h>

#include "program.h"

namespace millrace::cli {
namespace {

using ::testing::HasSubstr;

class FacesCommandTest : public ProgramTest {
 protected:
  void make_people() const {
    const Outcome made =
        run("data synth recordio:faces.rec --faces --identities 5 --images 4 --size 32 --pairs 20");
    ASSERT_EQ(made.status, 0) << made.errors;
    EXPECT_THAT(made.output, HasSubstr("20 pairs for verification in pairs.bin"));
  }
  void train(const std::string& more = "") const {
    const Outcome trained = run(kTrain + more);
    ASSERT_EQ(trained.status, 0) << trained.errors;
  }
  Json evaluate(const std::string& flags) const {
    const Outcome outcome = run("eval --threads-per-device 1 --conv-algo direct --json " + flags);
    EXPECT_EQ(outcome.status, 0) << outcome.errors;
    return outcome.status == 0 ? Json::parse(outcome.output) : Json();
  }

  const std::string kTrain =
      "train --model mobilefacenet --image 32 --classes 5 --batch 4 --steps 2 --quiet "
      "--threads-per-device 1 --conv-algo direct --data recordio:faces.rec";
};

TEST_F(FacesCommandTest, TrainsAndVerifies) {
  ASSERT_NO_FATAL_FAILURE(make_people());
  const Json facts = Json::parse(run("data inspect recordio:faces.rec --json").output);
  EXPECT_EQ(facts["records"], 20);
  EXPECT_EQ(facts["classes"], 5);
  ASSERT_NO_FATAL_FAILURE(train(" --checkpoint run --save-weights w.safetensors"));

  const Json pairs = evaluate("--verification pairs.bin run");
  EXPECT_EQ(pairs["model"], "mobilefacenet");
  EXPECT_EQ(pairs["pairs"], 20);
  EXPECT_GE(pairs["accuracy"].get<double>(), 0);
  EXPECT_LE(pairs["accuracy"].get<double>(), 1);
  for (const char* far : {"1e-2", "1e-3", "1e-4", "1e-5"}) {
    EXPECT_TRUE(pairs["tar_at_far"][far].is_number()) << far;
  }
  EXPECT_NEAR(pairs["smallest_far"].get<double>(), 0.1, 1e-12);

  const Json both = evaluate(
      "--verification pairs.bin --identification recordio:faces.rec --model mobilefacenet "
      "--image 32 --batch 3 --weights w.safetensors");
  EXPECT_EQ(both["tar_at_far"], pairs["tar_at_far"]);
  EXPECT_EQ(both["accuracy"], pairs["accuracy"]);
  EXPECT_EQ(both["gallery"], 5);
  EXPECT_EQ(both["probes"], 15);
  EXPECT_TRUE(both["rank1"].is_number());

  const Json classes = evaluate("--data recordio:faces.rec run");
  EXPECT_EQ(classes["samples"], 20);
}

TEST_F(FacesCommandTest, BadUsageIsOneSentence) {
  ASSERT_NO_FATAL_FAILURE(make_people());
  ASSERT_NO_FATAL_FAILURE(train(" --checkpoint run"));
  expect_refusal("eval --verification pairs.bin", "a run's directory or a file of weights");
  expect_refusal("eval --verification pairs.bin absent", "no checkpoint in 'absent'");
  expect_refusal("eval --verification absent.bin run", "absent.bin");
  expect_refusal("eval --verification faces.idx run", "Byte 0 of 'faces.idx'");
  expect_refusal("eval --verification pairs.bin run --checkpoint run", "one directory");
  expect_refusal("eval --verification pairs.bin --model resnet18 run", "gives no embeddings");
  expect_refusal("data synth recordio:new.rec --faces", "pairs.bin' already exists");
  expect_refusal("data synth recordio:new.rec --faces --pairs 0 --identities 0", "--identities");
}

TEST_F(FacesCommandTest, ANetworkThatOverflowsNamesStepLayerAndTensor) {
  ASSERT_NO_FATAL_FAILURE(make_people());
  for (const char* flag : {"", " --check-finite"}) {
    const Outcome failed = run(kTrain + " --lr 1e30" + flag);
    EXPECT_EQ(failed.status, 1) << failed.errors;
    EXPECT_THAT(failed.errors, HasSubstr("at step 2"));
    EXPECT_THAT(failed.errors, HasSubstr("layer 'layers."));
    EXPECT_THAT(failed.errors, HasSubstr("that are not finite"));
  }
}

}  // namespace
}  // namespace millrace::cli
