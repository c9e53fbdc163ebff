// Predictions from saved profiles: the same as when they were measured, refused for other jobs.
#include <gmock/gmock.h>

#include <cmath>
#include <functional>

#include "base/error.h"
#include "base/median.h"
#include "planner/published/left_out.h"
#include "profile/prediction_here.h"
#include "small_job.h"

namespace millrace::profile {
namespace {

using ::testing::HasSubstr;

struct Case {
  const char* placement;
  int64_t micro_batches;
  parallel::ScheduleKind schedule;
};

train::TrainJob job_of(const Case& wanted) {
  train::TrainJob job = small_job(wanted.placement, wanted.micro_batches);
  job.plan.schedule = wanted.schedule;
  return job;
}

constexpr Case kAlone = {"0:0", 1, parallel::ScheduleKind::gpipe};

JobProfile saved_and_read(const JobProfile& profile) {
  return parse_job_profile(to_json(profile).dump(), "saved.json");
}

class SavedProfiles : public ::testing::TestWithParam<Case> {};

TEST_P(SavedProfiles, GiveTheSamePrediction) {
  const train::TrainJob job = job_of(GetParam());
  train::TrainingObserver silent;
  const HerePrediction measured = predict_here(job, {.rounds = 2}, silent);
  const JobProfile saved = saved_and_read(measured.profile);
  const HerePrediction again = predict_here(job, saved, "saved.json", silent);
  EXPECT_EQ(again.steps.seconds, measured.steps.seconds);
  EXPECT_EQ(again.step_seconds, measured.step_seconds);
  EXPECT_EQ(again.error_estimate, measured.error_estimate);
  EXPECT_EQ(again.result.peak_memory, measured.result.peak_memory);
  ASSERT_EQ(again.devices.size(), measured.devices.size());
  for (size_t i = 0; i < again.devices.size(); ++i) {
    EXPECT_EQ(again.devices[i].arena_bytes, measured.devices[i].arena_bytes);
  }
}

INSTANTIATE_TEST_SUITE_P(All, SavedProfiles,
                         ::testing::Values(kAlone, Case{"0:0-1", 1, parallel::ScheduleKind::gpipe},
                                           Case{"0:0.0:1", 4,
                                                parallel::ScheduleKind::one_f_one_b_flush},
                                           Case{"0:0.0:1", 4, parallel::ScheduleKind::two_bw}));

class SavedProfileTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    train::TrainingObserver silent;
    profile_ = new JobProfile(profile_job(job_of(kAlone), {.rounds = 2}, silent));
  }
  static void TearDownTestSuite() { delete profile_; }

  static double seconds(const JobProfile& profile) {
    train::TrainingObserver silent;
    return predict_here(job_of(kAlone), profile, "saved.json", silent).step_seconds;
  }

  static std::string refusal(const train::TrainJob& job, const JobProfile& profile) {
    train::TrainingObserver silent;
    try {
      predict_here(job, profile, "saved.json", silent);
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  }

  static JobProfile* profile_;
};

JobProfile* SavedProfileTest::profile_ = nullptr;

TEST_F(SavedProfileTest, HalfOfAllNumbersIsHalfOfTheTime) {
  JobProfile half = *profile_;
  for (OperatorCost& cost : half.programs[0].operators) {
    cost.seconds /= 2;
    cost.alone_seconds /= 2;
  }
  EXPECT_GT(seconds(*profile_), 0);
  EXPECT_NEAR(seconds(half), seconds(*profile_) / 2, 1e-9 * seconds(*profile_));
}

TEST_F(SavedProfileTest, EditedNumbersCount) {
  JobProfile edited = *profile_;
  edited.programs[0].operators[0].seconds += 1;
  edited.programs[0].operators[0].alone_seconds += 1;
  EXPECT_NEAR(seconds(edited), seconds(*profile_) + 1, 1e-9);
}

TEST_F(SavedProfileTest, OtherJobsAreRefused) {
  const train::TrainJob job = job_of(kAlone);
  EXPECT_EQ(refusal(job, *profile_), "");
  train::TrainJob larger = job;
  larger.options.batch = 16;
  EXPECT_THAT(refusal(larger, *profile_), HasSubstr("its batch is 8, here it is 16"));
  train::TrainJob staged = job_of({"0:0.0:1", 2, parallel::ScheduleKind::gpipe});
  EXPECT_THAT(refusal(staged, *profile_), HasSubstr("another job"));
  JobProfile damaged = *profile_;
  damaged.programs[0].operators[1].name = "other";
  EXPECT_THAT(refusal(job, damaged), HasSubstr("is 'other', here it is"));
  damaged.programs[0].operators.pop_back();
  EXPECT_THAT(refusal(job, damaged), HasSubstr("instructions"));
  damaged = *profile_;
  damaged.programs[0].stage = 3;
  EXPECT_THAT(refusal(job, damaged), HasSubstr("stage is 3, here it is 0"));
  damaged = *profile_;
  damaged.threads = 7;
  EXPECT_THAT(refusal(job, damaged), HasSubstr("threads of a device is 7"));
  train::TrainingObserver silent;
  JobProfile pipeline = predict_here(staged, {.rounds = 1}, silent).profile;
  EXPECT_EQ(refusal(staged, pipeline), "");
  pipeline.programs[0].copies.clear();
  EXPECT_THAT(refusal(staged, pipeline), HasSubstr("no copy"));
}

// Three quarters between 0.058 and 0.062, the 18th and 19th of the 24 checked errors.
constexpr double kChecked = 0.059;

TEST(ErrorEstimateTest, IsTheRootOfTheSquaresOfSpreadAndCheckedErrors) {
  EXPECT_EQ(quantile({3, 1, 2}, 0.5), 2);
  EXPECT_DOUBLE_EQ(quantile({0, 1, 2, 3, 4}, 0.75), 3);
  EXPECT_DOUBLE_EQ(quantile({0, 10}, 0.75), 7.5);
  EXPECT_EQ(planner::checked_errors().size(), 24u);
  EXPECT_NEAR(quantile(planner::checked_errors(), 0.75), kChecked, 1e-12);
  train::TrainingObserver silent;
  const HerePrediction prediction = predict_here(job_of(kAlone), {.rounds = 3}, silent);
  EXPECT_NEAR(prediction.error_estimate,
              std::sqrt(std::pow(prediction.round_spread, 2) + std::pow(kChecked, 2)), 1e-12);
  const Json json = to_json(prediction);
  EXPECT_EQ(json["error_estimate_from"]["round_spread"], prediction.round_spread);
}

TEST(WireTest, SumsOfGradientsAreCostedAsTheyTravel) {
  train::TrainJob job = job_of({"0:0-1", 1, parallel::ScheduleKind::gpipe});
  train::TrainingObserver silent;
  const auto exchanged = [&](graph::DataType wire) {
    job.precision.communication = wire;
    train::Engine engine(job, train::Purpose::training, silent);
    int64_t bytes = 0;
    for (const compile::Instruction& instruction : engine.training()->instructions) {
      if (instruction.type == "gradient_reduce_start") bytes += instruction.exchanged_bytes;
    }
    return bytes;
  };
  const int64_t whole = exchanged(graph::DataType::f32);
  EXPECT_GT(whole, 0);
  EXPECT_EQ(exchanged(graph::DataType::bf16) * 2, whole);
}

}  // namespace
}  // namespace millrace::profile
