#include "train/job.h"

#include <gmock/gmock.h>

#include "support.h"
#include "train/job_record.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Interval, ReadsStepsAndEpochs) {
  EXPECT_EQ(parse_interval("500", "--x").steps, 500);
  EXPECT_EQ(parse_interval("2e", "--x").epochs, 2);
  for (const char* text : {"", "e", "0", "-3", "1.5", "3x", "99999999999999999999"}) {
    EXPECT_THAT(input_error_of([&] { parse_interval(text, "--x"); }), HasSubstr("--x")) << text;
  }
}

TEST(Interval, IsDueAtMultiples) {
  const Interval steps = {.steps = 3};
  EXPECT_TRUE(steps.due(6, 0));
  EXPECT_FALSE(steps.due(7, 0));
  const Interval epochs = {.epochs = 2};
  EXPECT_TRUE(epochs.due(20, 10));
  EXPECT_FALSE(epochs.due(10, 10));
  EXPECT_FALSE(epochs.due(10, 0));
  EXPECT_FALSE(Interval{}.due(10, 10));
}

TEST(Job, SmallJobIsGood) { EXPECT_NO_THROW(check(small_job())); }

TEST(Job, FaultsAreNamedByFlag) {
  const std::vector<std::pair<const char*, void (*)(TrainJob&)>> faults = {
      {"--batch", [](TrainJob& job) { job.options.batch = 0; }},
      {"--classes", [](TrainJob& job) { job.options.classes = -1; }},
      {"--steps", [](TrainJob& job) { job.steps = 0; }},
      {"--epochs", [](TrainJob& job) { job.epochs = 2; }},
      {"--momentum", [](TrainJob& job) { job.optimizer.momentum = 1.5; }},
      {"--nesterov",
       [](TrainJob& job) {
         job.optimizer.nesterov = true;
         job.optimizer.momentum = 0;
       }},
      {"--label-smoothing", [](TrainJob& job) { job.options.label_smoothing = 2; }},
      {"--resume", [](TrainJob& job) { job.resume = true; }},
      {"--checkpoint-every", [](TrainJob& job) { job.checkpoint_every.steps = 2; }},
      {"--eval-every", [](TrainJob& job) { job.evaluation_every.steps = 2; }},
      {"--workers", [](TrainJob& job) { job.data.workers = 0; }},
      {"--keep", [](TrainJob& job) { job.keep = 0; }}};
  for (const auto& [flag, spoil] : faults) {
    TrainJob job = small_job();
    spoil(job);
    EXPECT_THAT(input_error_of([&] { check(job); }), HasSubstr(flag));
  }
}

TEST(Job, ResumeNeedsTheSameFixedSettings) {
  const TrainJob job = small_job();
  EXPECT_THAT(compare_jobs(describe_job(job), describe_job(job), "c"), ElementsAre());
  TrainJob other = job;
  other.options.batch = 16;
  EXPECT_THAT(input_error_of([&] { compare_jobs(describe_job(job), describe_job(other), "c"); }),
              HasSubstr("--batch is 16 but checkpoint 'c' was made with 8"));
  EXPECT_THROW(compare_jobs(Json(), describe_job(job), "c"), InputError);
}

TEST(Job, OtherDifferencesAreListed) {
  const TrainJob job = small_job();
  TrainJob other = job;
  other.optimizer.weight_decay = 0.5;
  other.data.workers = 9;
  EXPECT_THAT(compare_jobs(describe_job(job), describe_job(other), "c"),
              ElementsAre("weight-decay"));
}

}  // namespace
}  // namespace millrace
