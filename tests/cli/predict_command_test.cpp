// Trained weights at work: they bring their names and recipe, and predict, embed and eval agree.
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>

#include "data/safetensors.h"
#include "program.h"

namespace millrace::cli {
namespace {

using ::testing::HasSubstr;

class PredictCommandTest : public ProgramTest {
 protected:
  void train() const {
    ASSERT_EQ(run("data synth folder:all --count 12 --classes 3 --height 40 --width 30").status, 0);
    const char* names[] = {"ant", "bee", "cat, black"};
    for (int i = 0; i < 3; ++i) {
      std::filesystem::rename(work() / "all" / fmt::format("{:06}", i), work() / "all" / names[i]);
    }
    const Outcome trained =
        run("train --model fashion_cnn --channels 3 --batch 6 --quiet --steps 4 " + kMachine +
            "--data folder:all --mean 0.3 --std 0.4,0.5,0.6 "
            "--checkpoint run --save-weights w.safetensors");
    ASSERT_EQ(trained.status, 0) << trained.errors;
  }

  Json json_of(const std::string& arguments) const {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.errors;
    return outcome.status == 0 ? Json::parse(outcome.output) : Json();
  }

  // Softmax of the logits that eval writes, sample by sample in the order of the folder.
  std::vector<std::vector<double>> evaluated_shares() const {
    json_of("eval --json --data folder:all --logits l.safetensors run " + kMachine);
    const data::SafetensorsFile file(work() / "l.safetensors");
    const data::SafetensorsEntry& entry = file.at("logits");
    std::vector<std::vector<double>> shares;
    for (int64_t row = 0; row < entry.shape[0]; ++row) {
      std::vector<float> logits(static_cast<size_t>(entry.shape[1]));
      const size_t bytes = logits.size() * sizeof(float);
      std::memcpy(logits.data(), entry.data.data() + static_cast<size_t>(row) * bytes, bytes);
      double sum = 0;
      for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
      std::vector<double>& row_shares = shares.emplace_back();
      for (const float logit : logits) {
        row_shares.push_back(std::exp(static_cast<double>(logit)) / sum);
      }
    }
    return shares;
  }

  const std::string kMachine = "--threads-per-device 1 --conv-algo direct ";
};

TEST_F(PredictCommandTest, TellsNamesAndTheSharesThatEvalHas) {
  ASSERT_NO_FATAL_FAILURE(train());
  const auto expected = evaluated_shares();
  ASSERT_EQ(expected.size(), 12u);
  const Json told = json_of("predict run all --json --top 9 --batch 5 " + kMachine);
  ASSERT_EQ(told.size(), 12u);
  const char* names[] = {"ant", "bee", "cat, black"};
  for (size_t i = 0; i < told.size(); ++i) {
    EXPECT_THAT(told[i]["file"], HasSubstr("all/"));
    ASSERT_EQ(told[i]["top"].size(), 3u);
    double before = 1;
    for (const Json& each : told[i]["top"]) {
      const auto label = each["class"].get<size_t>();
      EXPECT_EQ(each["name"], names[label]);
      EXPECT_NEAR(each["share"].get<double>(), expected[i][label], 1e-6) << i;
      EXPECT_LE(each["share"].get<double>(), before);
      before = each["share"].get<double>();
    }
  }
}

TEST_F(PredictCommandTest, OneFileAListAndEveryForm) {
  ASSERT_NO_FATAL_FAILURE(train());
  const Json all = json_of("predict run all --json --top 1 " + kMachine);
  const std::string file = all[7]["file"];
  // One image is a batch of its own.
  const Json one = json_of("predict w.safetensors " + file + " --json --top 1 " + kMachine);
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one[0]["top"][0]["name"], all[7]["top"][0]["name"]);
  EXPECT_NEAR(one[0]["top"][0]["share"].get<double>(), all[7]["top"][0]["share"].get<double>(),
              1e-6);
  const Outcome text = run("predict run " + file + " --top 2 " + kMachine);
  EXPECT_THAT(text.output, HasSubstr(file + ": " + all[7]["top"][0]["name"].get<std::string>()));
  EXPECT_THAT(text.output, HasSubstr(" %"));
  ASSERT_EQ(run("predict run all --csv -o out.csv --top 3 " + kMachine).status, 0);
  const std::string csv = read_text(work() / "out.csv");
  EXPECT_THAT(csv, HasSubstr("file,rank,class,name,share\n"));
  EXPECT_THAT(csv, HasSubstr(",\"cat, black\","));
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 37);
  write_text(work() / "list", file + "\n" + file + "\n");
  const std::string command =
      fmt::format("cd '{}' && '{}' predict run - --json {} < list > told.json", work().string(),
                  MILLRACE_PROGRAM, kMachine);
  ASSERT_EQ(std::system(command.c_str()), 0);
  EXPECT_EQ(Json::parse(read_text(work() / "told.json")).size(), 2u);
}

TEST_F(PredictCommandTest, WeightsBringTheirRecipe) {
  ASSERT_NO_FATAL_FAILURE(train());
  const Json own = json_of("eval --json --data folder:all run " + kMachine);
  const Json said = json_of(
      "eval --json --data folder:all run --augment small --mean 0.3 "
      "--std 0.4,0.5,0.6 " +
      kMachine);
  const Json other = json_of("eval --json --data folder:all run --augment small " + kMachine);
  EXPECT_EQ(own["loss"], said["loss"]);
  EXPECT_NE(own["loss"], other["loss"]);
  ASSERT_EQ(run("ckpt export run e.safetensors").status, 0);
  for (const char* file : {"w.safetensors", "e.safetensors"}) {
    const Json loaded =
        json_of(fmt::format("eval --json --data folder:all --weights {} {}", file, kMachine));
    EXPECT_EQ(loaded["loss"], own["loss"]) << file;
    const data::SafetensorsFile weights(work() / file);
    EXPECT_EQ(weights.metadata().at("classes"), R"(["ant","bee","cat, black"])");
  }
}

TEST_F(PredictCommandTest, DamagedFilesAreNamed) {
  ASSERT_NO_FATAL_FAILURE(train());
  write_text(work() / "bad.jpg", "no image");
  write_text(work() / "all" / "ant" / "notes.txt", "hello");
  expect_refusal("predict run all bad.jpg", "'bad.jpg' is bad");
  const Outcome skipped = run("predict run all bad.jpg --on-bad-record skip --json " + kMachine);
  EXPECT_EQ(skipped.status, 0);
  EXPECT_EQ(Json::parse(skipped.output).size(), 12u);
  EXPECT_THAT(skipped.errors, HasSubstr("1 file could not be read:\n"));
  EXPECT_THAT(skipped.errors, HasSubstr("bad.jpg"));
  const Outcome trained = run("train --model fashion_cnn --channels 3 --batch 6 --steps 1 " +
                              kMachine + "--data folder:all");
  EXPECT_THAT(trained.errors, HasSubstr("1 file is passed over, as images end in "));
  EXPECT_THAT(trained.errors, HasSubstr("notes.txt"));
}

size_t times(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST_F(PredictCommandTest, WhatIsSkippedIsCountedAndToldOnce) {
  ASSERT_NO_FATAL_FAILURE(train());
  write_text(work() / "all" / "ant" / "notes.txt", "hello");
  write_text(work() / "all" / "bee" / "bad.jpg", "no image");
  const Outcome measured =
      run("eval run --data folder:all --on-bad-record skip --json " + kMachine);
  EXPECT_EQ(Json::parse(measured.output)["skipped_records"], 1);
  EXPECT_EQ(Json::parse(measured.output)["samples"], 12);
  EXPECT_EQ(times(measured.errors, "bad.jpg"), 1u) << measured.errors;
  EXPECT_THAT(measured.errors, HasSubstr("1 bad record did not count:\n"));
  const Outcome trained =
      run("train --model fashion_cnn --channels 3 --batch 6 --epochs 3 " + kMachine +
          "--data folder:all --eval-data folder:all --on-bad-record skip");
  EXPECT_THAT(trained.output, HasSubstr("Bad records were skipped, 3 times in all:\n"));
  EXPECT_EQ(times(trained.output, "bad.jpg"), 1u) << trained.output;
  EXPECT_EQ(times(trained.errors, "passed over"), 1u) << trained.errors;
  EXPECT_EQ(times(trained.errors, "bad.jpg"), 1u) << trained.errors;
}

TEST_F(PredictCommandTest, TheNameOfTheFileChoosesTheForm) {
  ASSERT_NO_FATAL_FAILURE(train());
  const auto written = [this](const std::string& words, const std::string& file) {
    EXPECT_EQ(run("predict run all " + words + " -o " + file + " " + kMachine).status, 0);
    return read_text(work() / file);
  };
  EXPECT_EQ(written("", "l.csv"), written("--csv", "l"));
  EXPECT_EQ(written("", "l.json"), written("--json", "l"));
  EXPECT_EQ(written("--json", "l.csv"), written("--json", "l"));
  EXPECT_NE(written("", "l.txt"), written("--csv", "l"));
}

TEST_F(PredictCommandTest, BadUsageIsOneSentence) {
  ASSERT_NO_FATAL_FAILURE(train());
  std::filesystem::create_directory(work() / "empty");
  expect_refusal("predict", "Name the weights first");
  expect_refusal("predict run", "Name the images");
  expect_refusal("predict run absent.jpg", "'absent.jpg' does not exist");
  expect_refusal("predict run empty", "has no .jpg");
  expect_refusal("predict absent all", "absent");
  expect_refusal("predict empty all", "no checkpoint in 'empty'");
  expect_refusal("predict run all --top 0", "--top");
  expect_refusal("predict run all --json --csv", "choose one");
  expect_refusal("predict run all --std 0", "--std");
  expect_refusal("predict run all --mean 1,2", "--mean has 2 numbers");
  expect_refusal("predict run all -o /dev/null/x.json", "--output");
  expect_refusal("predict run all --image 0", "--image");
  expect_refusal("embed run all -o x.npy", "gives no embeddings");
  expect_refusal("embed run all", "--output is missing");
  expect_refusal("verify run all/ant", "Name two images");
}

TEST_F(PredictCommandTest, EmbeddingsAreRowsOfUnitLength) {
  ASSERT_EQ(run("data synth folder:faces --count 5 --classes 2 --height 32 --width 32").status, 0);
  ASSERT_EQ(run("train --model mobilefacenet --image 32 --batch 5 --steps 1 --quiet --data "
                "folder:faces --checkpoint run " +
                kMachine)
                .status,
            0);
  const Outcome done = run("embed run faces -o f.npy --names f.txt " + kMachine);
  ASSERT_EQ(done.status, 0) << done.errors;
  EXPECT_THAT(done.output, HasSubstr("5 vectors of "));
  const std::string bytes = read_text(work() / "f.npy");
  const size_t header = bytes.find('\n') + 1;
  EXPECT_EQ(header % 64, 0u);
  EXPECT_THAT(bytes.substr(0, header), HasSubstr("'shape': (5, "));
  std::vector<float> values((bytes.size() - header) / sizeof(float));
  std::memcpy(values.data(), bytes.data() + header, values.size() * sizeof(float));
  const size_t columns = values.size() / 5;
  double squares = 0, distance = 0;
  for (size_t i = 0; i < columns; ++i) {
    squares += static_cast<double>(values[i]) * values[i];
    const double difference = static_cast<double>(values[i]) - values[columns + i];
    distance += difference * difference;
  }
  EXPECT_NEAR(squares, 1, 1e-5);
  const std::vector<std::string> names = split(read_text(work() / "f.txt"), '\n');
  ASSERT_EQ(names.size(), 6u);
  const Json verified =
      json_of("verify run " + names[0] + " " + names[1] + " --json --threshold 4 " + kMachine);
  EXPECT_NEAR(verified["squared_distance"].get<double>(), distance, 1e-5);
  EXPECT_EQ(verified["same"], true);
}

}  // namespace
}  // namespace millrace::cli
