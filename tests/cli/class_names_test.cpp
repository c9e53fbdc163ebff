// Classes of folders are matched by name, and the network has as many as the data.
#include <gmock/gmock.h>

#include "program.h"

namespace millrace::cli {
namespace {

using ::testing::HasSubstr;

class ClassNamesTest : public ProgramTest {
 protected:
  void SetUp() override {
    ProgramTest::SetUp();
    ASSERT_EQ(run("data synth folder:all --count 30 --classes 3 --height 28 --width 28").status, 0);
    const char* names[] = {"ant", "bee", "cat"};
    for (int i = 0; i < 3; ++i) {
      const auto from = work() / "all" / fmt::format("{:06}", i);
      std::filesystem::rename(from, work() / "all" / names[i]);
    }
  }

  void copy_class(const std::string& name, const std::string& set) const {
    std::filesystem::create_directories(work() / set);
    std::filesystem::copy(work() / "all" / name, work() / set / name,
                          std::filesystem::copy_options::recursive);
  }

  Json evaluate(const std::string& set) const {
    const Outcome outcome =
        run("eval --json --batch 7 " + kMachine + "--data folder:" + set + " run");
    EXPECT_EQ(outcome.status, 0) << outcome.errors;
    return outcome.status == 0 ? Json::parse(outcome.output) : Json();
  }

  void train(const std::string& more) const {
    const Outcome outcome = run(kTrain + more);
    ASSERT_EQ(outcome.status, 0) << outcome.errors;
  }

  const std::string kMachine = "--threads-per-device 1 --conv-algo direct ";
  const std::string kTrain =
      "train --model fashion_cnn --channels 3 --batch 10 --quiet " + kMachine;
};

// The sums over a set are those over its parts, whichever classes a part lacks.
TEST_F(ClassNamesTest, AFolderThatLacksClassesIsScoredAsAPartOfTheWhole) {
  ASSERT_NO_FATAL_FAILURE(train("--data folder:all --steps 12 --lr 0.02 --checkpoint run"));
  EXPECT_EQ(
      Json::parse(
          run("ckpt inspect run --json").output)[0]["manifest"]["job"]["fixed"]["class_names"],
      Json({"ant", "bee", "cat"}));
  copy_class("ant", "first");
  copy_class("bee", "others");
  copy_class("cat", "others");
  const Json whole = evaluate("all"), first = evaluate("first"), others = evaluate("others");
  for (const char* sum : {"loss", "top1"}) {
    const auto total = [&](const Json& json) {
      return json[sum].get<double>() * json["samples"].get<double>();
    };
    EXPECT_NEAR(total(first) + total(others), total(whole), 1e-3) << sum;
  }
  EXPECT_EQ(whole["samples"], 30);

  copy_class("cat", "strange");
  std::filesystem::rename(work() / "strange" / "cat", work() / "strange" / "cow");
  expect_refusal("eval " + kMachine + "--data folder:strange run", "'strange/cow' is a class");
}

TEST_F(ClassNamesTest, EvaluationWhileTrainingGoesByNameToo) {
  copy_class("bee", "part");
  const std::string more = "--data folder:all --steps 2 --checkpoint run --summary s.json ";
  ASSERT_NO_FATAL_FAILURE(train(more + "--eval-data folder:part"));
  const Json summary = Json::parse(read_text(work() / "s.json"));
  EXPECT_NEAR(summary["evaluation"]["loss"].get<double>(), evaluate("part")["loss"].get<double>(),
              1e-4);
}

TEST_F(ClassNamesTest, TheNetworkHasAsManyClassesAsTheData) {
  ASSERT_NO_FATAL_FAILURE(train("--data folder:all --steps 1 --checkpoint run"));
  const auto classes_of_run = [&] {
    const Json inspected = Json::parse(run("ckpt inspect run --json").output);
    return inspected[0]["manifest"]["job"]["fixed"]["classes"].get<int>();
  };
  EXPECT_EQ(classes_of_run(), 3);
  std::filesystem::remove_all(work() / "run");
  ASSERT_NO_FATAL_FAILURE(train("--data folder:all --classes 5 --steps 1 --checkpoint run"));
  EXPECT_EQ(classes_of_run(), 5);
  expect_refusal(kTrain + "--data folder:all --classes 2 --steps 1",
                 "--classes is 2, but 'folder:all' has 3 classes");

  ASSERT_EQ(run("data convert folder:all idx:small").status, 0);
  expect_refusal(kTrain + "--data idx:small --classes 2 --steps 1", "'idx:small' has 3 classes");
  ASSERT_EQ(run("data convert folder:all ofrecord:records").status, 0);
  const Outcome told = run("train --model fashion_cnn --channels 3 --batch 10 --steps 1 " +
                           kMachine + "--data ofrecord:records");
  EXPECT_THAT(told.output, HasSubstr("--classes is 10, as the data does not tell"));
  EXPECT_EQ(told.status, 0) << told.errors;
}

TEST_F(ClassNamesTest, NamesThatNothingMatchesAreRefused) {
  copy_class("ant", "two");
  copy_class("bee", "two");
  ASSERT_EQ(run("data convert folder:all raw:plain").status, 0);
  expect_refusal(kTrain + "--data raw:plain --steps 1 --eval-data folder:two",
                 "'folder:two' has 2 classes and the network 3");
  expect_refusal(kTrain + "--data folder:all --label-offset 1 --steps 1",
                 "numbers its classes from 0");
  ASSERT_NO_FATAL_FAILURE(train("--data folder:all --steps 1 --checkpoint run"));
  std::filesystem::rename(work() / "all" / "cat", work() / "all" / "cow");
  expect_refusal(kTrain + "--data folder:all --steps 2 --checkpoint run --resume",
                 "Class 2 of --data is \"cow\", but \"cat\" in checkpoint");
}

}  // namespace
}  // namespace millrace::cli
