#include "parallel/simulation.h"

#include <gtest/gtest.h>

#include <map>

namespace millrace::parallel {
namespace {

Simulation run(ScheduleKind kind, int stages, int64_t micro_batches, const Costs& costs = {}) {
  const Schedule schedule =
      make_schedule({.kind = kind, .stages = stages, .micro_batches = micro_batches, .steps = 1});
  return simulate(schedule, channels_between(schedule), costs);
}

// Forward 1, backward 2: both schedules take (m + d - 1) * 3 with equal stages.
TEST(Simulation, BubblesFollowTheClosedFormulas) {
  for (int stages = 1; stages <= 8; ++stages) {
    for (int64_t m = 1; m <= 16; ++m) {
      const double d = stages;
      const auto micro_batches = static_cast<double>(m);
      for (const auto kind : {ScheduleKind::gpipe, ScheduleKind::one_f_one_b_flush}) {
        const Simulation result = run(kind, stages, m);
        EXPECT_DOUBLE_EQ(result.seconds, 3 * (micro_batches + d - 1));
        EXPECT_NEAR(result.bubble_of_total(), (d - 1) / (micro_batches + d - 1), 1e-12);
        EXPECT_NEAR(result.bubble_of_ideal(), (d - 1) / micro_batches, 1e-12);
      }
    }
  }
}

// Three parts of 1: with at least as many micro-batches as stages only the fill is left; with
// fewer the way of the first micro-batch there and back counts.
TEST(Simulation, ZeroBubbleLeavesOneThird) {
  for (int stages = 2; stages <= 8; ++stages) {
    for (int64_t m = 1; m <= 16; ++m) {
      const Simulation result = run(ScheduleKind::zero_bubble, stages, m);
      const auto micro_batches = static_cast<double>(m);
      EXPECT_DOUBLE_EQ(result.seconds, std::max(3 * micro_batches + stages - 1,
                                                2 * micro_batches + 2 * stages - 1));
      const Simulation flush = run(ScheduleKind::one_f_one_b_flush, stages, m);
      EXPECT_LT(result.seconds, flush.seconds);
      if (m >= stages) {
        EXPECT_NEAR(result.bubble_of_ideal(), flush.bubble_of_ideal() / 3, 1e-12);
        EXPECT_LE(result.bubble_of_total(), flush.bubble_of_total() / 2);
      }
    }
  }
}

// Without flushes n mini-batches take 3 n and the way of the first forward and last backward.
TEST(Simulation, UndrainedSchedulesFillOnce) {
  for (const auto kind : {ScheduleKind::one_f_one_b, ScheduleKind::ssp, ScheduleKind::two_bw}) {
    const Schedule schedule =
        make_schedule({.kind = kind, .stages = 4, .micro_batches = 4, .steps = 50});
    EXPECT_DOUBLE_EQ(simulate(schedule, channels_between(schedule)).seconds, 3.0 * (200 + 3))
        << name_of(kind);
  }
  const Schedule flush = make_schedule({.stages = 4, .micro_batches = 4, .steps = 50});
  EXPECT_DOUBLE_EQ(simulate(flush, channels_between(flush)).seconds, 50 * 3.0 * (4 + 3));
}

// Replicas of a stage that costs as many times more keep up with the others.
TEST(Simulation, RoundRobinReplicasShareTheWorkOfALongStage) {
  Costs costs;
  costs.task = [](int stage, const Task& task) {
    if (task.work == Work::update) return 0.0;
    return (stage == 0 ? 3.0 : 1.0) * (task.work == Work::forward ? 1 : 2);
  };
  const Schedule schedule = make_schedule({.kind = ScheduleKind::one_f_one_b,
                                           .stages = 2,
                                           .steps = 300,
                                           .replicas = {3, 1},
                                           .round_robin = true});
  const Simulation result = simulate(schedule, channels_between(schedule), costs);
  EXPECT_LT(result.seconds, 3 * 300 * 1.03);
}

TEST(Simulation, TransfersDelayAndFullChannelsHoldUp) {
  Costs costs;
  costs.transfer = [](const Channel&) { return 0.5; };
  const double both_ways = run(ScheduleKind::gpipe, 3, 1, costs).seconds;
  EXPECT_DOUBLE_EQ(both_ways, 3 * 3 + 4 * 0.5);
  const Schedule schedule =
      make_schedule({.kind = ScheduleKind::gpipe, .stages = 2, .micro_batches = 4, .steps = 1});
  EXPECT_GT(simulate(schedule, channels_between(schedule, 1)).seconds,
            simulate(schedule, channels_between(schedule, 2)).seconds);
}

// An independent look at the result: rows do one thing at a time, and nothing begins before what
// it needs.
TEST(Simulation, RespectsWhatDependsOnWhat) {
  Costs costs;
  costs.task = [](int stage, const Task& task) {
    return 0.1 + 0.37 * stage + 0.11 * static_cast<double>(task.work) +
           0.01 * static_cast<double>(task.micro_batch % 3);
  };
  for (const auto kind :
       {ScheduleKind::zero_bubble, ScheduleKind::one_f_one_b, ScheduleKind::ssp}) {
    const Schedule schedule = make_schedule({.kind = kind,
                                             .stages = 4,
                                             .micro_batches = 2,
                                             .steps = 6,
                                             .replicas = {2, 1, 3, 1},
                                             .round_robin = true,
                                             .static_scheduling = false});
    const Simulation result = simulate(schedule, channels_between(schedule), costs);
    std::map<std::pair<int, int64_t>, double> forward_end;
    std::map<std::pair<int, int64_t>, double> backward_end;
    for (size_t row = 0; row < result.rows.size(); ++row) {
      double before = 0;
      for (const SimulatedTask& entry : result.rows[row]) {
        EXPECT_GE(entry.begin, before);
        before = entry.end;
        const std::pair<int, int64_t> key = {schedule.rows[row].stage, entry.task.micro_batch};
        if (entry.task.work == Work::forward) forward_end[key] = entry.end;
        if (entry.task.work == Work::backward || entry.task.work == Work::backward_input) {
          backward_end[key] = entry.end;
        }
      }
    }
    EXPECT_EQ(forward_end.size(), 4u * 12);
    EXPECT_EQ(backward_end.size(), 4u * 12);
    for (size_t row = 0; row < result.rows.size(); ++row) {
      const int stage = schedule.rows[row].stage;
      for (const SimulatedTask& entry : result.rows[row]) {
        const int64_t b = entry.task.micro_batch;
        if (entry.task.work == Work::forward && stage > 0) {
          EXPECT_GE(entry.begin, forward_end.at({stage - 1, b}));
        }
        if ((entry.task.work == Work::backward || entry.task.work == Work::backward_input) &&
            stage < 3) {
          EXPECT_GE(entry.begin, backward_end.at({stage + 1, b}));
        }
      }
    }
  }
}

// Without a fixed order a row never holds more than its bound, and its weights are never older.
TEST(Simulation, FreeOrderKeepsTheBounds) {
  Costs costs;
  costs.task = [](int stage, const Task& task) {
    return 1.0 + static_cast<double>((stage * 7 + task.micro_batch * 5) % 4) +
           (task.work == Work::backward ? 1 : 0);
  };
  const Schedule schedule = make_schedule(
      {.kind = ScheduleKind::ssp, .stages = 4, .steps = 40, .static_scheduling = false});
  const Simulation result = simulate(schedule, channels_between(schedule), costs);
  for (size_t row = 0; row < result.rows.size(); ++row) {
    int64_t alive = 0;
    int64_t updates = 0;
    for (const SimulatedTask& entry : result.rows[row]) {
      if (entry.task.work == Work::forward) {
        EXPECT_EQ(entry.task.version, updates);
        EXPECT_LE(entry.task.micro_batch - entry.task.version, 4 - schedule.rows[row].stage);
        EXPECT_LE(++alive, 4 - schedule.rows[row].stage);
      }
      if (entry.task.work == Work::backward) --alive;
      if (entry.task.work == Work::update) ++updates;
    }
    EXPECT_EQ(updates, 40);
  }
}

TEST(Simulation, InterleavedRowsOfSharedDevicesKeepTheirOrder) {
  const Schedule schedule = make_schedule({.stages = 4, .micro_batches = 6, .steps = 2});
  const std::vector<RowTask> merged = interleave(schedule, {0, 2}, channels_between(schedule));
  std::map<int, std::vector<Task>> apart;
  for (const RowTask& entry : merged) apart[entry.row].push_back(entry.task);
  EXPECT_EQ(apart.size(), 2u);
  EXPECT_EQ(apart[0], schedule.rows[0].tasks);
  EXPECT_EQ(apart[2], schedule.rows[2].tasks);
}

}  // namespace
}  // namespace millrace::parallel
