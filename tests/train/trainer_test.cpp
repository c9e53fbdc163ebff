#include "train/trainer.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/resource.h>

#include <cmath>
#include <fstream>
#include <thread>

#include "data/tools.h"
#include "support.h"
#include "train/checkpoint.h"
#include "train/checkpoint_writer.h"
#include "train/engine.h"
#include "train/plan.h"
#include "train/summary.h"

namespace millrace::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TrainerTest : public DirectoryTest {
 protected:
  // 50 grey images of 10 classes: three batches of 16 an epoch, two samples left over.
  std::string make_data() {
    const std::string data = "ofrecord:" + (directory_ / "data").string();
    data::SynthOptions options;
    options.count = 50;
    options.height = options.width = 28;
    options.channels = 1;
    data::synth_data(data, options, {});
    return data;
  }

  TrainJob data_job(const std::string& data) const {
    TrainJob job = small_job();
    job.options.batch = 16;
    job.data.source = data;
    job.data.augment = "small";
    job.steps = 8;
    return job;
  }

  std::string weights_of(TrainJob job, const std::string& name) {
    job.save_weights = directory_ / name;
    run_training(job, recorder_);
    return read_text(job.save_weights);
  }

  Recorder recorder_;
};

TEST_F(TrainerTest, ReportsEveryStepAndLearns) {
  TrainJob job = small_job();
  job.steps = 12;
  const TrainResult result = run_training(job, recorder_);
  ASSERT_EQ(recorder_.steps.size(), 12u);
  EXPECT_EQ(recorder_.steps.back().step, 12);
  EXPECT_EQ(recorder_.steps.back().total_steps, 12);
  EXPECT_NEAR(result.losses.front(), std::log(10.0), 1.0);
  EXPECT_LT(result.losses.back(), result.losses.front() / 2);
  EXPECT_FALSE(result.interrupted);
  ASSERT_EQ(result.devices.size(), 1u);
  EXPECT_EQ(result.devices[0].breakdown.total(), result.devices[0].arena_bytes);
}

TEST_F(TrainerTest, SameSeedSameBitsOtherSeedOtherBits) {
  TrainJob job = small_job();
  const std::string first = weights_of(job, "first");
  EXPECT_TRUE(first == weights_of(job, "second"));
  job.seed = 8;
  EXPECT_FALSE(first == weights_of(job, "third"));
}

TEST_F(TrainerTest, LearningRateIsTheSchedules) {
  TrainJob job = small_job();
  job.steps = 4;
  job.learning_rate = {.kind = LearningRateSettings::Kind::cosine, .base = 0.1, .warmup_steps = 2};
  run_training(job, recorder_);
  EXPECT_DOUBLE_EQ(recorder_.steps[0].learning_rate, 0.05);
  EXPECT_DOUBLE_EQ(recorder_.steps[2].learning_rate, 0.1);
  EXPECT_NEAR(recorder_.steps[3].learning_rate, 0.05, 1e-15);
}

TEST_F(TrainerTest, ResumeGivesTheSameBitsMidEpochWithOtherWorkers) {
  TrainJob job = data_job(make_data());
  const std::string expected = weights_of(job, "straight");
  job.checkpoint = directory_ / "run";
  job.checkpoint_every.steps = 1;
  std::atomic<bool> stop = false;
  job.stop = &stop;
  recorder_.after_step = [&](int64_t step) { stop = step == 5; };
  EXPECT_TRUE(run_training(job, recorder_).interrupted);
  EXPECT_EQ(list_checkpoints(job.checkpoint).back().step, 5);

  stop = false;
  recorder_ = {};
  job.resume = true;
  job.data.workers = 1;
  EXPECT_TRUE(expected == weights_of(job, "resumed"));
  EXPECT_EQ(recorder_.starts.front().first_step, 5);
  ASSERT_EQ(recorder_.steps.size(), 3u);
  EXPECT_EQ(recorder_.steps.front().step, 6);
  EXPECT_TRUE(recorder_.warnings.empty());
}

TEST_F(TrainerTest, ResumePassesOverADamagedCheckpoint) {
  TrainJob job = data_job(make_data());
  const std::string expected = weights_of(job, "straight");
  job.checkpoint = directory_ / "run";
  job.checkpoint_every.steps = 3;
  job.keep = 5;
  run_training(job, recorder_);
  std::filesystem::resize_file(job.checkpoint / "step-00000008" / kWeightsFile, 1000);
  job.resume = true;
  recorder_ = {};
  EXPECT_TRUE(expected == weights_of(job, "resumed"));
  ASSERT_EQ(recorder_.warnings.size(), 1u);
  EXPECT_THAT(recorder_.warnings[0], HasSubstr("step-00000008"));
  EXPECT_EQ(recorder_.starts.front().first_step, 6);
  EXPECT_NO_THROW(verify_checkpoint(job.checkpoint / "step-00000008"));
}

TEST_F(TrainerTest, ResumeWithoutACheckpointStartsAtTheBeginning) {
  TrainJob job = small_job();
  job.checkpoint = directory_ / "run";
  job.resume = true;
  run_training(job, recorder_);
  EXPECT_EQ(recorder_.steps.size(), 6u);
  EXPECT_FALSE(recorder_.notes.empty());
}

TEST_F(TrainerTest, RefusesToMixARunWithOldCheckpoints) {
  TrainJob job = small_job();
  job.checkpoint = directory_ / "run";
  run_training(job, recorder_);
  EXPECT_THAT(input_error_of([&] { run_training(job, recorder_); }), HasSubstr("add ‹resume›"));
  job.resume = true;
  job.options.batch = 4;
  EXPECT_THAT(input_error_of([&] { run_training(job, recorder_); }), HasSubstr("‹batch› is 4"));
}

TEST_F(TrainerTest, ACheckpointThatCannotBeWrittenIsAWarning) {
  TrainJob job = small_job();
  job.checkpoint = directory_ / "run";
  job.checkpoint_every.steps = 2;
  job.steps = 2;
  run_training(job, recorder_);
  job.steps = 6;
  job.resume = true;
  recorder_.after_step = [&](int64_t step) {
    if (step != 3) return;
    // The first checkpoint is safe and no other begun; from here on nothing can be made beside it.
    std::filesystem::rename(job.checkpoint, directory_ / "away");
    std::ofstream(job.checkpoint).put('x');
  };
  const TrainResult result = run_training(job, recorder_);
  EXPECT_EQ(result.step, 6);
  EXPECT_THAT(result.checkpoint_failure, HasSubstr("cannot be made"));
  EXPECT_THAT(recorder_.warnings, ElementsAre(HasSubstr("step 4"), HasSubstr("step 6")));
  EXPECT_NO_THROW(verify_checkpoint(directory_ / "away" / "step-00000002"));
}

TEST_F(TrainerTest, TheSpaceAskedForIsThatOfACheckpoint) {
  for (const double decay : {0.0, 0.9}) {
    TrainJob job = small_job();
    job.steps = 1;
    job.average_decay = decay;
    job.checkpoint = directory_ / fmt::format("decay-{}", decay);
    run_training(job, recorder_);
    uint64_t written = 0;
    for (const auto& entry :
         std::filesystem::directory_iterator(job.checkpoint / "step-00000001")) {
      written += entry.file_size();
    }
    Engine engine(job, Purpose::training, recorder_);
    engine.start(job.seed);
    const uint64_t asked = checkpoint_bytes(JobState(engine), decay > 0);
    EXPECT_GE(asked, written);
    EXPECT_LT(asked, written + (1 << 16));
  }
}

TEST_F(TrainerTest, AFullDiskLeavesThePreviousCheckpoint) {
  TrainJob job = small_job();
  job.checkpoint = directory_ / "run";
  job.checkpoint_every.steps = 2;
  job.keep = 1;
  ::signal(SIGXFSZ, SIG_IGN);
  struct rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  recorder_.after_step = [&](int64_t step) {
    if (step != 3) return;
    while (!std::filesystem::exists(job.checkpoint / "step-00000002")) std::this_thread::yield();
    const struct rlimit small = {100'000, before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  };
  const TrainResult result = run_training(job, recorder_);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(result.step, 6);
  EXPECT_THAT(result.checkpoint_failure, HasSubstr("Cannot write"));
  EXPECT_EQ(list_checkpoints(job.checkpoint).size(), 1u);
  EXPECT_NO_THROW(verify_checkpoint(job.checkpoint / "step-00000002"));
  EXPECT_FALSE(std::filesystem::exists(job.checkpoint / "step-00000004.partial"));
}

TEST_F(TrainerTest, EvaluationIsExactForAnyBatch) {
  const std::string data = make_data();
  TrainJob job = small_job();
  weights_of(job, "weights");
  job.load_weights = directory_ / "weights";
  job.evaluation_data = data;
  EvaluationReport expected;
  for (const int64_t batch : {1, 7, 16, 64}) {
    job.options.batch = batch;
    const EvaluationReport report = run_evaluation(job, recorder_).report;
    EXPECT_EQ(report.samples, 50);
    if (batch == 1) expected = report;
    EXPECT_EQ(report.figure("top1").value, expected.figure("top1").value) << batch;
    EXPECT_EQ(report.figure("top5").value, expected.figure("top5").value) << batch;
    EXPECT_NEAR(report.figure("loss").value, expected.figure("loss").value, 1e-5) << batch;
  }
}

TEST_F(TrainerTest, EvaluationDuringTrainingDoesNotChangeIt) {
  const std::string data = make_data();
  TrainJob job = small_job();
  const std::string expected = weights_of(job, "straight");
  job.evaluation_data = data;
  job.evaluation_every.steps = 2;
  EXPECT_TRUE(expected == weights_of(job, "evaluated"));
  ASSERT_EQ(recorder_.evaluations.size(), 3u);
  EXPECT_EQ(recorder_.evaluations[1].step, 4);

  TrainJob alone = small_job();
  alone.load_weights = directory_ / "evaluated";
  alone.evaluation_data = data;
  const EvaluationReport report = run_evaluation(alone, recorder_).report;
  EXPECT_EQ(report.figure("top1").value, recorder_.evaluations[2].figure("top1").value);
  EXPECT_NEAR(report.figure("loss").value, recorder_.evaluations[2].figure("loss").value, 1e-6);
}

// Devices that divide the samples have running statistics of their own: those that are saved are
// those that are evaluated with.
TEST_F(TrainerTest, EvaluationOfReplicasIsThatOfTheirCheckpoint) {
  const std::string data = make_data();
  for (const char* placement : {"0:0-1", "0:0-1.0:2-3", "0:0.0:1-2"}) {
    for (const bool round_robin : {false, true}) {
      SCOPED_TRACE(placement);
      TrainJob job = data_job(data);
      job.oversubscribe = true;
      job.plan.stages = parallel::parse_stages(placement);
      job.plan.micro_batches = 2;
      job.plan.round_robin = round_robin;
      job.evaluation_data = data;
      weights_of(job, "replicas");
      const EvaluationReport expected = recorder_.evaluations.back();

      TrainJob alone = small_job();
      alone.load_weights = directory_ / "replicas";
      alone.evaluation_data = data;
      const EvaluationReport report = run_evaluation(alone, recorder_).report;
      EXPECT_EQ(report.figure("top1").value, expected.figure("top1").value);
      EXPECT_NEAR(report.figure("loss").value, expected.figure("loss").value, 1e-5);
    }
  }
}

TEST_F(TrainerTest, SavedWeightsLoadBack) {
  TrainJob job = small_job();
  const std::string saved = weights_of(job, "saved");
  job.load_weights = directory_ / "saved";
  job.learning_rate.base = 0;
  job.optimizer.momentum = 0;
  job.steps = 1;
  weights_of(job, "again");
  const data::SafetensorsFile first(directory_ / "saved"), second(directory_ / "again");
  for (const data::SafetensorsEntry& entry : first.entries()) {
    if (entry.name.find("running") != std::string::npos) continue;
    const auto& other = second.at(entry.name);
    EXPECT_TRUE(std::equal(entry.data.begin(), entry.data.end(), other.data.begin())) << entry.name;
  }
}

TEST_F(TrainerTest, ALossThatIsNoNumberEndsTheJob) {
  TrainJob job = small_job();
  job.learning_rate.base = 1e30;
  try {
    run_training(job, recorder_);
    FAIL() << "the job went on";
  } catch (const JobError& error) {
    EXPECT_THAT(error.what(), HasSubstr("at step"));
    EXPECT_THAT(error.what(), HasSubstr("that are not finite"));
    EXPECT_THAT(error.what(), HasSubstr("layer '"));
  }
}

// Whoever waits for the stage that fails is often heard before it.
TEST_F(TrainerTest, APipelineThatDivergesSaysWhatOneDeviceWould) {
  const auto sentence = [&](const std::string& placement, parallel::ScheduleKind schedule) {
    TrainJob job = small_job();
    job.learning_rate.base = 1e30;
    job.oversubscribe = true;
    job.plan.stages = parallel::parse_stages(placement);
    job.plan.schedule = schedule;
    try {
      run_training(job, recorder_);
    } catch (const JobError& error) {
      return std::string(error.what());
    }
    return std::string("the job went on");
  };
  const std::string alone = sentence("0:0", parallel::ScheduleKind::one_f_one_b_flush);
  const std::string beginning = alone.substr(0, alone.find(": "));
  EXPECT_THAT(beginning, HasSubstr("The loss is not finite at step "));
  for (int i = 0; i < 5; ++i) {
    const std::string drained = sentence("0:0.0:1", parallel::ScheduleKind::one_f_one_b_flush);
    EXPECT_THAT(drained, HasSubstr(beginning + ": layer '"));
    EXPECT_THAT(drained, HasSubstr("'loss' that are not finite in stage 1; lower lr"));
    const std::string late = sentence("0:0.0:1", parallel::ScheduleKind::one_f_one_b);
    EXPECT_THAT(late, HasSubstr("The loss is not finite at step "));
    EXPECT_THAT(late, HasSubstr("in stage 1; lower lr"));
  }
}

TEST_F(TrainerTest, AJobBeyondTheLimitIsRefusedBeforeItStarts) {
  TrainJob job = small_job();
  job.device_memory = 1 << 20;
  EXPECT_NE(input_error_of([&] { run_training(job, recorder_); }), "");
  EXPECT_TRUE(recorder_.starts.empty());
  const Json plan = describe_plan(job, recorder_);
  EXPECT_FALSE(plan["fits"].get<bool>());
  EXPECT_GT(plan["devices"][0]["peak_bytes"].get<int64_t>(), job.device_memory);
}

TEST_F(TrainerTest, PlanAndRunAgreeOnTheMemory) {
  const TrainJob job = small_job();
  const Json plan = describe_plan(job, recorder_);
  const TrainResult result = run_training(job, recorder_);
  EXPECT_EQ(plan["devices"][0]["peak_bytes"], result.devices[0].arena_bytes);
  EXPECT_EQ(plan["devices"][0]["breakdown"], to_json(result.devices[0].breakdown));
  EXPECT_TRUE(plan["fits"].get<bool>());
  EXPECT_FALSE(plan.contains("predicted_seconds_per_step"));  // without a simulator
}

TEST_F(TrainerTest, SummaryHasTheContractsKeys) {
  const TrainJob job = small_job();
  const Json summary = summary_of(job, run_training(job, recorder_));
  EXPECT_EQ(summary["model"], "fashion_cnn");
  EXPECT_EQ(summary["global_batch"], 8);
  EXPECT_EQ(summary["steps"], 6);
  EXPECT_EQ(summary["precision"], "fp32");
  EXPECT_EQ(summary["loss"].size(), 6u);
  for (const char* key : {"median", "min", "max"}) {
    EXPECT_GT(summary["seconds_per_step"][key].get<double>(), 0) << key;
  }
  EXPECT_NEAR(summary["samples_per_second"].get<double>() *
                  summary["seconds_per_step"]["median"].get<double>(),
              8, 1e-9);
  EXPECT_GT(summary["process_peak_rss_bytes"].get<int64_t>(), 0);
  int64_t sum = 0;
  for (const char* key :
       {"weights", "gradients", "optimizer", "activations", "workspace", "communication"}) {
    sum += summary["devices"][0]["breakdown"][key].get<int64_t>();
  }
  EXPECT_EQ(summary["devices"][0]["peak_bytes"], sum);
  EXPECT_EQ(summary["devices"][0]["id"], "0:0");
}

}  // namespace
}  // namespace millrace::train
