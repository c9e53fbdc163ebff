#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cstring>
#include <thread>

#include "data/safetensors.h"
#include "program.h"

namespace millrace::cli {
namespace {

using ::testing::HasSubstr;

const std::string kTrain =
    "train --model fashion_cnn --batch 4 --threads-per-device 1 --conv-algo direct --steps 3";

class CommandTest : public ProgramTest {};

TEST_F(CommandTest, HelpTeaches) {
  const Outcome top = run("--help");
  EXPECT_EQ(top.status, 0);
  for (const char* command : {"train", "plan", "eval", "data", "ckpt"}) {
    EXPECT_THAT(top.output, HasSubstr(command));
  }
  const Outcome train = run("train --help");
  EXPECT_EQ(train.status, 0);
  for (const char* part : {"Examples:", "--model", "resnet50", "--lr-schedule", "cosine",
                           "Checkpoints:", "Exit status", "[0.9]"}) {
    EXPECT_THAT(train.output, HasSubstr(part));
  }
  for (const std::string& line : split(train.output, '\n')) EXPECT_LE(line.size(), 100u) << line;
}

TEST_F(CommandTest, VersionIsPrinted) {
  EXPECT_THAT(run("--version").output, HasSubstr("millrace "));
}

// 1 TiB and more: no host that runs this has it.
TEST_F(CommandTest, AJobThatTheHostCannotHoldIsRefused) {
  const std::string job =
      "train --model resnet50 --steps 1 --conv-algo direct --threads-per-device 1";
  expect_refusal(job + " --batch 65536", "of memory on this host, which has");
}

TEST_F(CommandTest, BadUsageIsOneSentence) {
  expect_refusal("train --modle resnet50", "did you mean '--model'?");
  expect_refusal("train --model resnet51 --steps 1", "did you mean 'resnet50'?");
  expect_refusal("trian", "did you mean 'train'?");
  expect_refusal("train", "--model is missing");
  expect_refusal("train --model resnet50", "--steps");
  expect_refusal("train --model resnet50 --steps", "--steps needs a value");
  expect_refusal("train --model resnet50 --steps many", "--steps is 'many'; give a whole number.");
  expect_refusal("train --model resnet50 --steps 1 --lr fast", "--lr is 'fast'; give a number.");
  expect_refusal("train --model resnet50 --steps 1 --seed -1", "--seed is -1; give at least 0.");
  expect_refusal("train --model resnet50 --steps 1 --batch 9 --global-batch 0 --restarts -1",
                 "--restarts is -1; give 0 to 1000000.");
  expect_refusal("train --model resnet50 --steps 1 extra", "'extra'");
  expect_refusal("train --model resnet50 --steps 1 --batch 0", "--batch");
  expect_refusal("train --model resnet50 --steps 1 --batch -3", "--batch");
  expect_refusal("train --model resnet50 --steps 1 --optimizer sdg", "did you mean 'sgd'?");
  expect_refusal("train --model resnet50 --steps 1 --device-memory lots", "--device-memory");
  expect_refusal("train --model alexnet --steps 1 --image 8", "image");
  expect_refusal("train --model resnet50 --steps 1 --placement 0:3-1", "--placement");
  expect_refusal(kTrain + " --placement 0:0,0:1.0:1 --schedule ssp --static-scheduling off",
                 "device 0:1 has several stages");
  expect_refusal(kTrain + " --devices 2 --oversubscribe --replicas roundrobin --sync-batch-norm",
                 "has no effect with --replicas roundrobin");
  expect_refusal("train --model resnet50 --steps 1 --precision fp8", "--precision");
  expect_refusal("train --model resnet50 --steps 1 --data folder:absent", "absent");
  expect_refusal("train --model resnet50 --steps 1 --data nonsense", "nonsense");
  expect_refusal("train --model resnet50 --epochs 1", "--steps");
  expect_refusal("train --model resnet50 --steps 1 --lr nan", "--lr");
  expect_refusal("train --model resnet50 --steps 1 --threads-per-device 100000", "cores");
  expect_refusal("ckpt", "inspect");
  expect_refusal("ckpt inspect absent", "absent");
  expect_refusal("eval --model fashion_cnn --data synthetic",
                 "a run's directory or a file of weights");
}

TEST_F(CommandTest, AnOverflowNeedsADeviceThatTrains) {
  const std::string frozen =
      kTrain +
      " --oversubscribe --placement 0:0.0:1 --cut-after layer1.0 --freeze conv1,bn1,layer1 "
      "--loss-scale dynamic --quiet --inject-overflow ";
  expect_refusal(frozen + "2", "device 0, which has no layer that is trained");
  EXPECT_EQ(run(frozen + "2:1").status, 0);
}

TEST_F(CommandTest, UnwritableOutputsAreRefusedBeforeWork) {
  write_text(work() / "file", "x");
  for (const char* flag : {"--summary", "--metrics", "--save-weights", "--trace"}) {
    expect_refusal(kTrain + " " + flag + " file/below", flag);
  }
  expect_refusal(kTrain + " --checkpoint file", "--checkpoint");
  expect_refusal(kTrain + " --summary ok.json --metrics file/m", "--metrics");
}

TEST_F(CommandTest, AJobThatDoesNotFitIsRefused) {
  expect_refusal(kTrain + " --device-memory 1MiB --checkpoint run --summary s.json", "MiB");
}

TEST_F(CommandTest, BadWeightsAreRefusedAndNothingIsWritten) {
  write_text(work() / "truncated", "\x40");
  expect_refusal(kTrain + " --load-weights truncated --checkpoint run", "truncated");
  write_text(work() / "lying", std::string("\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10));
  expect_refusal(kTrain + " --load-weights lying --checkpoint run", "lying");
  const float value = 1;
  const data::SafetensorsTensor tensor = {"nothing", "F32", {1}, &value, sizeof(value)};
  data::write_safetensors(work() / "other", {&tensor, 1}, {});
  expect_refusal(kTrain + " --load-weights other --checkpoint run", "tensors are missing");
  expect_refusal(kTrain + " --load-weights absent --checkpoint run", "absent");
}

TEST_F(CommandTest, TrainWritesSummaryMetricsAndWeights) {
  const Outcome outcome = run(kTrain +
                              " --summary s.json --metrics m.jsonl --save-weights w.safetensors "
                              "--checkpoint run --eval-data synthetic");
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_EQ(outcome.errors, "");
  EXPECT_THAT(outcome.output, HasSubstr("step 3/3  loss "));
  const Json summary = Json::parse(read_text(work() / "s.json"));
  EXPECT_EQ(summary["steps"], 3);
  EXPECT_EQ(summary["evaluation"]["samples"], 4);
  EXPECT_EQ(split(read_text(work() / "m.jsonl"), '\n').size(), 3u + 2u + 1u);

  ASSERT_EQ(run("ckpt export run out.safetensors").status, 0);
  const data::SafetensorsFile saved(work() / "w.safetensors"), exported(work() / "out.safetensors");
  ASSERT_EQ(saved.entries().size(), exported.entries().size());
  for (const data::SafetensorsEntry& entry : saved.entries()) {
    const data::SafetensorsEntry& other = exported.at(entry.name);
    ASSERT_EQ(entry.data.size(), other.data.size());
    EXPECT_EQ(std::memcmp(entry.data.data(), other.data.data(), entry.data.size()), 0);
  }
  const Json inspected = Json::parse(run("ckpt inspect run --json").output);
  EXPECT_EQ(inspected[0]["manifest"]["step"], 3);
  EXPECT_TRUE(inspected[0]["intact"].get<bool>());

  const Outcome evaluated =
      run("eval --model fashion_cnn --batch 4 --data synthetic --conv-algo direct "
          "--threads-per-device 1 --checkpoint run --json");
  ASSERT_EQ(evaluated.status, 0) << evaluated.errors;
  EXPECT_NEAR(Json::parse(evaluated.output)["loss"].get<double>(),
              summary["evaluation"]["loss"].get<double>(), 1e-5);
}

// Sanitizers keep books of their own, which count as memory of the process.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_F(CommandTest, TheProcessNeedsTheArenaAndTheConstantOfTheManual) {
  constexpr double kConstant = 64.0 * 1024 * 1024;  // docs/memory.md
  for (const char* job : {"fashion_cnn --batch 128", "resnet18 --batch 8 --image 64"}) {
    ASSERT_EQ(
        run(fmt::format("train --model {} --conv-algo direct --steps 2 --summary s.json", job))
            .status,
        0);
    const Json summary = Json::parse(read_text(directory_ / "work" / "s.json"));
    const auto arena = summary["devices"][0]["peak_bytes"].get<double>();
    const auto booked = summary["devices"][0]["breakdown"]["workspace"].get<double>();
    const auto process = summary["process_peak_rss_bytes"].get<double>();
    EXPECT_LT(process, arena * 1.1 + kConstant) << job;
    EXPECT_GT(process, arena - booked) << job;  // a kernel may need less than it books
  }
}
#endif

TEST_F(CommandTest, QuietPrintsNothing) {
  const Outcome outcome = run(kTrain + " --quiet");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.output, "");
  EXPECT_EQ(outcome.errors, "");
}

TEST_F(CommandTest, AFailedJobIsStatusOne) {
  const Outcome outcome = run(kTrain + " --lr 1e30 --quiet --summary s.json");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.errors, HasSubstr("at step"));
  EXPECT_FALSE(std::filesystem::exists(work() / "s.json"));
}

TEST_F(CommandTest, PlanJsonHasTheContractsKeys) {
  const std::string plan = "plan --model fashion_cnn --batch 4 --threads-per-device 1 --json";
  const Outcome outcome = run(plan + " --device-memory 1GiB");
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_THAT(outcome.errors, HasSubstr("Compiling fashion_cnn ...\n"));
  const Json json = Json::parse(outcome.output);
  for (const char* key :
       {"devices", "predicted_seconds_per_step", "predicted_samples_per_second", "fits", "plan"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  for (const char* key :
       {"weights", "gradients", "optimizer", "activations", "workspace", "communication"}) {
    EXPECT_TRUE(json["devices"][0]["breakdown"].contains(key)) << key;
  }
  EXPECT_TRUE(json["fits"].get<bool>());
  EXPECT_FALSE(Json::parse(run(plan + " --device-memory 1MiB").output)["fits"].get<bool>());
  EXPECT_TRUE(files().empty());
}

// Devices share the cores that there are: eight times as many compute about as much.
TEST_F(CommandTest, PlansOfMoreDevicesThanCoresAreNotFaster) {
  const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  const auto rate = [&](unsigned devices) {
    const Outcome outcome =
        run(fmt::format("plan --model fashion_cnn --batch 4 --devices {} --threads-per-device 1 "
                        "--oversubscribe --json",
                        devices));
    EXPECT_EQ(outcome.status, 0) << outcome.errors;
    return Json::parse(outcome.output)["predicted_samples_per_second"].get<double>();
  };
  EXPECT_LT(rate(8 * cores), 4 * rate(cores));
}

TEST_F(CommandTest, TrainTakesWhatPlanPrinted) {
  const std::string job = "--model fashion_cnn --batch 4 --threads-per-device 1 --oversubscribe";
  const Outcome planned =
      run("plan " + job + " --placement 0:0.0:1 --schedule 1f1b-flush --microbatches 2 --json");
  ASSERT_EQ(planned.status, 0) << planned.errors;
  write_text(work() / "plan.json", planned.output);
  const Outcome trained = run("train " + job + " --steps 1 --plan plan.json --summary s.json");
  ASSERT_EQ(trained.status, 0) << trained.errors;
  EXPECT_EQ(Json::parse(read_text(work() / "s.json"))["plan"], Json::parse(planned.output)["plan"]);
}

TEST_F(CommandTest, DumpPassesWritesGraphs) {
  ASSERT_EQ(run(kTrain + " --quiet --dump-passes passes").status, 0);
  EXPECT_TRUE(std::filesystem::exists(work() / "passes" / "00-input.txt"));
}

}  // namespace
}  // namespace millrace::cli
