#include "train/job.h"

#include <gmock/gmock.h>

#include "support.h"
#include "train/job_record.h"

namespace millrace::train {
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

TEST(Job, FaultsNameTheSetting) {
  const std::vector<std::pair<const char*, void (*)(TrainJob&)>> faults = {
      {"‹batch›", [](TrainJob& job) { job.options.batch = 0; }},
      {"‹classes›", [](TrainJob& job) { job.options.classes = -1; }},
      {"‹steps›", [](TrainJob& job) { job.steps = 0; }},
      {"‹epochs›", [](TrainJob& job) { job.epochs = 2; }},
      {"‹momentum›", [](TrainJob& job) { job.optimizer.momentum = 1.5; }},
      {"‹nesterov›",
       [](TrainJob& job) {
         job.optimizer.nesterov = true;
         job.optimizer.momentum = 0;
       }},
      {"‹label_smoothing›", [](TrainJob& job) { job.options.label_smoothing = 2; }},
      {"‹resume›", [](TrainJob& job) { job.resume = true; }},
      {"‹checkpoint_every›", [](TrainJob& job) { job.checkpoint_every.steps = 2; }},
      {"‹eval_every›", [](TrainJob& job) { job.evaluation_every.steps = 2; }},
      {"‹workers›", [](TrainJob& job) { job.data.workers = 0; }},
      {"‹workers›", [](TrainJob& job) { job.data.workers = 1000000; }},
      {"‹adam_beta1›", [](TrainJob& job) { job.optimizer.beta1 = 1; }},
      {"‹adam_beta2›", [](TrainJob& job) { job.optimizer.beta2 = 1; }},
      {"‹adam_epsilon›", [](TrainJob& job) { job.optimizer.epsilon = 0; }},
      {"‹lars_trust›", [](TrainJob& job) { job.optimizer.trust = 0; }},
      {"‹momentum›", [](TrainJob& job) { job.optimizer.momentum = 1; }},
      {"‹label_offset›", [](TrainJob& job) { job.data.label_offset = INT64_MIN; }},
      {"‹steps›", [](TrainJob& job) { job.steps = INT64_MAX; }},
      {"‹keep›", [](TrainJob& job) { job.keep = 0; }}};
  for (const auto& [setting, spoil] : faults) {
    TrainJob job = small_job();
    spoil(job);
    EXPECT_THAT(input_error_of([&] { check(job); }), HasSubstr(setting));
  }
}

TEST(Job, ResumeNeedsTheSameFixedSettings) {
  const TrainJob job = small_job();
  EXPECT_NO_THROW(require_same_job(describe_job(job), describe_job(job), "c"));
  TrainJob other = job;
  other.options.batch = 16;
  EXPECT_THAT(
      input_error_of([&] { require_same_job(describe_job(job), describe_job(other), "c"); }),
      HasSubstr("‹batch› is 16 but checkpoint 'c' was made with 8"));
  EXPECT_THROW(require_same_job(Json(), describe_job(job), "c"), InputError);
}

std::vector<std::string> described(const std::vector<SettingChange>& changes) {
  std::vector<std::string> texts;
  for (const SettingChange& change : changes) {
    texts.push_back(change.name + " " + change.was.dump() + " " + change.is.dump());
  }
  return texts;
}

TEST(Job, OtherDifferencesAreListed) {
  const TrainJob job = small_job();
  TrainJob other = job;
  other.optimizer.weight_decay = 0.5;
  other.data.workers = 9;
  other.loss_scale.scale = 1024;
  other.plan.micro_batches = 2;
  const Json before = describe_job(job);
  EXPECT_THAT(described(changed_settings(before, before)), ElementsAre());
  EXPECT_THAT(described(changed_settings(before, describe_job(other))),
              ElementsAre("‹weight_decay› 0.0001 0.5", "‹loss_scale› 1.0 1024.0",
                          "The plan's microbatches 1 2"));
  EXPECT_THAT(described(changed_settings(Json::object(), describe_job(other))), ElementsAre());
}

TEST(Job, ChangesOfTheLearningRateAreListed) {
  const LearningRateSettings before = {.base = 0.1, .total_steps = 10};
  LearningRateSettings longer = before;
  longer.total_steps = 20;
  EXPECT_THAT(described(changed_rates(to_json(before), to_json(longer))), ElementsAre());
  longer.base = 0.5;
  longer.kind = LearningRateSettings::Kind::cosine;
  EXPECT_THAT(described(changed_rates(to_json(before), to_json(longer))),
              ElementsAre("‹lr› 0.1 0.5", "‹lr_schedule› \"constant\" \"cosine\"",
                          "The number of steps, which the learning rate depends on, 10 20"));
}

}  // namespace
}  // namespace millrace::train
