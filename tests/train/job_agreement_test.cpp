#include "train/job_agreement.h"

#include <gmock/gmock.h>

#include <thread>

#include "comm/local_group.h"
#include "support.h"

namespace millrace::train {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::StrEq;

// The sentence with which each member refuses, or nothing.
std::vector<std::string> compare(const std::vector<Json>& descriptions) {
  std::vector<std::string> names;
  for (size_t i = 0; i < descriptions.size(); ++i) {
    names.push_back(fmt::format("rank {} on host {}", i, static_cast<char>('a' + i)));
  }
  std::vector<comm::Group> groups =
      comm::make_local_groups(static_cast<int>(descriptions.size()), std::move(names));
  std::vector<std::string> sentences(descriptions.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < descriptions.size(); ++i) {
    threads.emplace_back([&, i] {
      sentences[i] = input_error_of([&] { require_agreement(groups[i], descriptions[i]); });
    });
  }
  for (std::thread& thread : threads) thread.join();
  return sentences;
}

Json described(const TrainJob& job, int64_t samples = 100) {
  return describe_agreement(job, models::build_model(job.model, job.options), samples);
}

TEST(JobAgreement, TheSameJobIsAccepted) {
  const Json json = described(small_job());
  EXPECT_THAT(compare({json, json, json}), Each(StrEq("")));
  EXPECT_THAT(compare({json}), Each(StrEq("")));
  EXPECT_NE(json["build"], "unknown");
}

TEST(JobAgreement, EveryRankNamesTheFirstDifferenceAndWhoHasIt) {
  TrainJob other = small_job();
  other.seed = 8;
  other.optimizer.momentum = 0.5;
  const Json one = described(small_job());
  EXPECT_THAT(
      compare({one, described(other), one, described(other)}),
      Each(AllOf(HasSubstr("seed is 7 on rank 0 on host a but 8 on rank 1 on host b, rank 3 "
                           "on host d"),
                 testing::Not(HasSubstr("momentum")))));
}

TEST(JobAgreement, SettingsThatChangeAResultMustBeTheSame) {
  const auto expect_refused = [](const char* field, const auto& change) {
    TrainJob job = small_job();
    change(job);
    EXPECT_THAT(compare({described(small_job()), described(job)}), Each(HasSubstr(field))) << field;
  };
  expect_refused("model is", [](TrainJob& job) {
    job.model = "alexnet";
    job.options = models::default_options("alexnet");
  });
  expect_refused("batch", [](TrainJob& job) { job.options.batch = 9; });
  expect_refused("steps", [](TrainJob& job) { job.steps = 5; });
  expect_refused("weight-decay", [](TrainJob& job) { job.optimizer.weight_decay = 0.5; });
  expect_refused("learning-rate.base", [](TrainJob& job) { job.learning_rate.base = 0.5; });
  expect_refused("learning-rate.milestones is [] on",
                 [](TrainJob& job) { job.learning_rate.milestones = {3}; });
  expect_refused("resume", [](TrainJob& job) { job.resume = true; });
  EXPECT_THAT(compare({described(small_job(), 10), described(small_job(), 11)}),
              Each(HasSubstr("samples in the data set is 10")));
}

TEST(JobAgreement, PathsMayDiffer) {
  TrainJob other = small_job();
  other.data.source = "idx:/elsewhere";
  other.save_weights = "here";
  EXPECT_THAT(compare({described(small_job()), described(other)}), Each(StrEq("")));
}

TEST(JobAgreement, AFieldThatOnlySomeHaveIsADifference) {
  EXPECT_THAT(compare({{{"a", 1}}, {{"a", 1}, {"extra", 2}}}),
              Each(HasSubstr("extra is missing on rank 0 on host a but 2 on rank 1")));
}

}  // namespace
}  // namespace millrace::train
