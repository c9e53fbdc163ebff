// Stages made by hand run what their row says, in that order, on the data that belongs to it.
#include "../../bench/waiting_stages.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace millrace::runtime {
namespace {

TEST(WaitingStages, RunTheirRows) {
  for (parallel::ScheduleKind kind :
       {parallel::ScheduleKind::gpipe, parallel::ScheduleKind::one_f_one_b_flush,
        parallel::ScheduleKind::zero_bubble, parallel::ScheduleKind::two_bw}) {
    for (int stages : {2, 4, 8}) {
      const WaitingJob job = {kind, stages, 8, 1, 0.0002};
      SCOPED_TRACE(std::string(parallel::name_of(kind)) + " with " + std::to_string(stages) +
                   " stages");
      const WaitingRun run = run_waiting(job);
      const parallel::Schedule schedule =
          parallel::make_schedule({.kind = kind, .stages = stages, .micro_batches = 8});
      for (size_t stage = 0; stage < run.order.size(); ++stage) {
        std::vector<std::pair<parallel::Work, int64_t>> expected;
        for (const parallel::Task& task : schedule.rows[stage].tasks) {
          if (task.work != parallel::Work::update)
            expected.emplace_back(task.work, task.micro_batch);
        }
        std::vector<std::pair<parallel::Work, int64_t>> ran;
        for (const parallel::Task& task : run.order[stage])
          ran.emplace_back(task.work, task.micro_batch);
        EXPECT_EQ(ran, expected) << "stage " << stage;
      }
      EXPECT_GT(run.bubble, 0);
      EXPECT_LT(run.bubble, 1);
    }
  }
}

TEST(WaitingStages, AFailureEndsEveryStage) {
  for (int64_t micro_batch : {0, 3, 7}) {
    const WaitingJob job = {
        parallel::ScheduleKind::one_f_one_b_flush, 4, 8, 2, 0.0002, micro_batch};
    try {
      run_waiting(job);
      FAIL() << "nobody noticed";
    } catch (const JobError& error) {
      EXPECT_STREQ(error.what(), "The device has caught fire.");
    }
  }
}

}  // namespace
}  // namespace millrace::runtime
