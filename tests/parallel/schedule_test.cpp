#include "parallel/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "parallel/simulation.h"

namespace millrace::parallel {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr ScheduleKind kAll[] = {ScheduleKind::gpipe,       ScheduleKind::one_f_one_b_flush,
                                 ScheduleKind::zero_bubble, ScheduleKind::one_f_one_b,
                                 ScheduleKind::ssp,         ScheduleKind::two_bw};

std::vector<std::string> words(const Row& row) {
  std::vector<std::string> all;
  for (const Task& task : row.tasks) {
    const std::string letter = task.work == Work::forward            ? "F"
                               : task.work == Work::update           ? "U"
                               : task.work == Work::backward_weights ? "W"
                                                                     : "B";
    all.push_back(letter + std::to_string(task.micro_batch) + "." + std::to_string(task.version));
  }
  return all;
}

std::string message_of(const ScheduleRequest& request) {
  try {
    make_schedule(request);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Schedule, TablesByHand) {
  const Schedule flush = make_schedule(
      {.kind = ScheduleKind::one_f_one_b_flush, .stages = 2, .micro_batches = 3, .steps = 1});
  EXPECT_THAT(words(flush.rows[0]),
              ElementsAre("F0.0", "F1.0", "B0.0", "F2.0", "B1.0", "B2.0", "U2.0"));
  EXPECT_THAT(words(flush.rows[1]),
              ElementsAre("F0.0", "B0.0", "F1.0", "B1.0", "F2.0", "B2.0", "U2.0"));
  const Schedule stash =
      make_schedule({.kind = ScheduleKind::one_f_one_b, .stages = 2, .steps = 3});
  EXPECT_THAT(words(stash.rows[0]),
              ElementsAre("F0.0", "F1.0", "B0.0", "U0.0", "F2.1", "B1.0", "U1.1", "B2.1", "U2.2"));
  const Schedule zero = make_schedule(
      {.kind = ScheduleKind::zero_bubble, .stages = 2, .micro_batches = 3, .steps = 1});
  EXPECT_THAT(words(zero.rows[1]), ElementsAre("F0.0", "B0.0", "F1.0", "B1.0", "W0.0", "F2.0",
                                               "B2.0", "W1.0", "W2.0", "U2.0"));
}

// Two devices with two stages each: device 0 has stages 0 and 2.
TEST(Schedule, InterleavedByHand) {
  const Schedule schedule = make_schedule(
      {.kind = ScheduleKind::interleaved, .stages = 4, .micro_batches = 4, .steps = 1, .turns = 2});
  std::vector<std::string> first;
  for (const RowTask& one : schedule.orders.at(0)) {
    const std::string letter = one.task.work == Work::forward    ? "F"
                               : one.task.work == Work::backward ? "B"
                                                                 : "U";
    first.push_back(letter + std::to_string(one.task.micro_batch) + "s" + std::to_string(one.row));
  }
  EXPECT_THAT(first,
              ElementsAre("F0s0", "F1s0", "F0s2", "F1s2", "F2s0", "B0s2", "F3s0", "B1s2", "F2s2",
                          "B0s0", "F3s2", "B1s0", "B2s2", "B3s2", "B2s0", "B3s0", "U3s0", "U3s2"));
}

// Bubbles are as many times shorter as a device has stages (Narayanan et al., section 2.2.2).
TEST(Schedule, InterleavedTakesTheTimeOfTheFormula) {
  for (const int devices : {1, 2, 3, 4, 8}) {
    for (const int chunks : {1, 2, 3, 4}) {
      for (const int groups : {1, 2, 5}) {
        ScheduleRequest request = {.kind = ScheduleKind::interleaved,
                                   .stages = devices * chunks,
                                   .micro_batches = devices * groups,
                                   .turns = devices};
        const Schedule schedule = make_schedule(request);
        ASSERT_EQ(check(schedule, channels_between(schedule)), "")
            << devices << " " << chunks << " " << groups;
        EXPECT_DOUBLE_EQ(simulate(schedule, channels_between(schedule)).seconds,
                         3.0 * (devices * groups * chunks + devices - 1))
            << devices << " " << chunks << " " << groups;
        request.steps = 3;
        EXPECT_EQ(check(make_schedule(request), channels_between(schedule)), "");
      }
    }
  }
}

TEST(Schedule, InterleavedRefusesWhatIsNotInTurn) {
  ScheduleRequest request = {
      .kind = ScheduleKind::interleaved, .stages = 4, .micro_batches = 4, .turns = 0};
  EXPECT_THAT(message_of(request), HasSubstr("in turn"));
  request.turns = 2;
  request.micro_batches = 3;
  EXPECT_THAT(message_of(request), HasSubstr("microbatches"));
}

TEST(Schedule, WarmUpFollowsPipeDream) {
  EXPECT_EQ(warm_up({1, 1, 1, 1}, 0), 3);
  EXPECT_EQ(warm_up({1, 1, 1, 1}, 3), 0);
  EXPECT_EQ(warm_up({7, 1}, 0), 1);
  EXPECT_EQ(warm_up({7, 1}, 1), 0);
  EXPECT_EQ(warm_up({3, 2, 1}, 0), 1);
  EXPECT_EQ(warm_up({3, 2, 1}, 1), 1);
  EXPECT_EQ(warm_up({1, 3, 2}, 0), 5);
}

// Version of a mini-batch's weights by counting, straight pipeline, d stages: mini-batch i has seen
// the updates of 0 … i - (d - s), those before the warm-up none.
TEST(Schedule, StashedVersionsAndRings) {
  for (const ScheduleKind kind : {ScheduleKind::one_f_one_b, ScheduleKind::ssp}) {
    const Schedule schedule = make_schedule({.kind = kind, .stages = 4, .steps = 12});
    for (const Row& row : schedule.rows) {
      EXPECT_EQ(row.versions, 4 - row.stage);
      EXPECT_EQ(row.in_flight, 4 - row.stage);
      for (const Task& task : row.tasks) {
        if (task.work == Work::update) continue;
        EXPECT_EQ(task.version, std::max<int64_t>(0, task.micro_batch - (3 - row.stage)));
      }
    }
  }
}

// As the paper's loop tells it: within the m pairs before update t, forward i reads the older
// weights if i < m - w, else the newer; backward always the older.
TEST(Schedule, TwoVersionsFollowTheLoopOfThePaper) {
  constexpr int64_t kMicroBatches = 5;
  const Schedule schedule = make_schedule(
      {.kind = ScheduleKind::two_bw, .stages = 4, .micro_batches = kMicroBatches, .steps = 4});
  for (const Row& row : schedule.rows) {
    const int64_t warm = 3 - row.stage;
    int64_t batch = 0;
    int64_t forward = -warm;
    int64_t seen = 0;
    for (const Task& task : row.tasks) {
      const int64_t older = std::max<int64_t>(0, batch - 1);
      if (task.work == Work::update) {
        EXPECT_EQ(task.version, batch);
        ++batch;
        forward = 0;
      } else if (task.work == Work::backward) {
        EXPECT_EQ(task.version, older);
      } else {
        EXPECT_EQ(task.micro_batch, seen++);
        const bool first_run = forward < 0;
        EXPECT_EQ(task.version, first_run || forward < kMicroBatches - warm ? older : batch);
        ++forward;
      }
    }
  }
}

TEST(Schedule, RoundRobinReplicasTakeMiniBatchesInTurn) {
  const Schedule schedule = make_schedule({.kind = ScheduleKind::one_f_one_b,
                                           .stages = 2,
                                           .steps = 5,
                                           .replicas = {2, 1},
                                           .round_robin = true});
  ASSERT_EQ(schedule.rows.size(), 3u);
  EXPECT_THAT(words(schedule.rows[0]),
              ElementsAre("F0.0", "F2.0", "B0.0", "U1.0", "F4.1", "B2.0", "U3.1", "B4.1", "U4.2"));
  EXPECT_THAT(words(schedule.rows[1]),
              ElementsAre("F1.0", "F3.0", "B1.0", "U1.0", "B3.0", "U3.1", "U4.2"));
  EXPECT_EQ(schedule.updates_of(0), 3);
  EXPECT_EQ(schedule.updates_of(1), 5);
}

TEST(Schedule, EveryKindAndShapePassesItsCheck) {
  for (const ScheduleKind kind : kAll) {
    for (int stages = 1; stages <= 8; ++stages) {
      for (int64_t micro_batches = 1; micro_batches <= 16; ++micro_batches) {
        if (kind == ScheduleKind::two_bw && micro_batches < stages) continue;
        for (const bool fixed : {true, false}) {
          const Schedule schedule = make_schedule({.kind = kind,
                                                   .stages = stages,
                                                   .micro_batches = micro_batches,
                                                   .steps = 3,
                                                   .static_scheduling = fixed});
          const std::string what = std::string(name_of(kind)) + " " + std::to_string(stages) + " " +
                                   std::to_string(micro_batches);
          EXPECT_EQ(check(schedule, channels_between(schedule, 1)), "") << what;
          EXPECT_EQ(schedule.fixed_order, fixed || kind != ScheduleKind::ssp);
        }
      }
    }
  }
}

TEST(Schedule, RandomReplicasSkipsAndLengthsPassTheirCheck) {
  std::mt19937 random(7);
  const auto draw = [&](int least, int most) {
    return std::uniform_int_distribution<int>(least, most)(random);
  };
  for (int round = 0; round < 1500; ++round) {
    ScheduleRequest request;
    request.kind = kAll[draw(0, 5)];
    request.stages = draw(2, 8);
    int workers = 0;
    for (int stage = 0; stage < request.stages; ++stage) {
      request.replicas.push_back(draw(0, 2) == 0 ? draw(1, 7) : 1);
      workers += request.replicas.back();
    }
    request.round_robin = draw(0, 3) > 0;
    request.micro_batches = draw(1, 16);
    if (request.kind == ScheduleKind::two_bw) request.micro_batches = workers + draw(0, 9);
    request.steps = draw(1, 9);
    request.static_scheduling = draw(0, 1) == 1;
    std::vector<std::pair<int, int>> skips;
    for (int from = 0; from + 2 < request.stages; ++from) {
      if (draw(0, 2) == 0) skips.emplace_back(from, draw(from + 2, request.stages - 1));
    }
    const Schedule schedule = make_schedule(request);
    const std::string fault = check(schedule, channels_between(schedule, draw(1, 3), skips));
    ASSERT_EQ(fault, "") << "round " << round;
  }
}

TEST(Schedule, ZeroBubbleNeedsNoMoreMemoryThanTheFirstStageOf1F1B) {
  for (int stages = 2; stages <= 8; ++stages) {
    const ScheduleRequest request = {.stages = stages, .micro_batches = 16, .steps = 2};
    ScheduleRequest split = request;
    split.kind = ScheduleKind::zero_bubble;
    const int64_t most = make_schedule(request).rows[0].in_flight;
    for (const Row& row : make_schedule(split).rows) EXPECT_LE(row.in_flight, most);
  }
}

TEST(Schedule, CheckFindsWhatIsBroken) {
  const auto make = [](ScheduleKind kind) {
    return make_schedule({.kind = kind, .stages = 3, .micro_batches = 4, .steps = 2});
  };
  const auto fault = [](const Schedule& schedule) {
    return check(schedule, channels_between(schedule, 1));
  };
  Schedule missing = make(ScheduleKind::gpipe);
  missing.rows[1].tasks.erase(missing.rows[1].tasks.begin());
  EXPECT_THAT(fault(missing), HasSubstr("row 1 (stage 1, replica 0): backward of micro-batch 0"));
  Schedule version = make(ScheduleKind::one_f_one_b);
  version.rows[0].tasks[0].version = 1;
  EXPECT_THAT(fault(version), HasSubstr("weights that do not exist yet"));
  Schedule ring = make(ScheduleKind::one_f_one_b);
  ring.rows[0].versions = 1;
  EXPECT_THAT(fault(ring), HasSubstr("kept no longer"));
  Schedule crowded = make(ScheduleKind::gpipe);
  crowded.rows[2].in_flight = 3;
  EXPECT_THAT(fault(crowded), HasSubstr("4 are in flight, but 3 are declared"));
  Schedule early = make(ScheduleKind::gpipe);
  std::swap(early.rows[0].tasks[7], early.rows[0].tasks[8]);
  EXPECT_THAT(fault(early), HasSubstr("before the gradient of micro-batch 3"));
  Schedule twice = make(ScheduleKind::zero_bubble);
  twice.rows[0].tasks.push_back(twice.rows[0].tasks.back());
  EXPECT_THAT(fault(twice), HasSubstr("out of turn"));
  Schedule lost = make(ScheduleKind::zero_bubble);
  lost.rows.pop_back();
  EXPECT_THAT(fault(lost), HasSubstr("2 rows instead of 3"));
  Schedule stale = make(ScheduleKind::gpipe);
  for (Task& task : stale.rows[0].tasks) {
    if (task.micro_batch >= 4 && task.work != Work::update) task.version = 0;
  }
  stale.rows[0].versions = 2;
  EXPECT_THAT(fault(stale), HasSubstr("weights of another step"));
}

TEST(Schedule, CheckNamesWhatIsStuck) {
  // Stage 1 wants every forward before it sends anything back, stage 0 only two ahead.
  Schedule schedule = make_schedule({.stages = 2, .micro_batches = 4, .steps = 1});
  schedule.rows[1] =
      make_schedule({.kind = ScheduleKind::gpipe, .stages = 2, .micro_batches = 4, .steps = 1})
          .rows[1];
  const std::string fault = check(schedule, channels_between(schedule));
  EXPECT_THAT(fault, HasSubstr("gets stuck"));
  EXPECT_THAT(fault, HasSubstr("stage 0 before backward of micro-batch 0 waits for what stage 1"));
  EXPECT_THAT(fault, HasSubstr("stage 1 before forward of micro-batch 2 waits for what stage 0"));
  EXPECT_THAT(check(make_schedule({.stages = 2}), {{0, 1, 0}}), HasSubstr("not possible"));
  EXPECT_THAT(check(make_schedule({.stages = 2}), {{0, 1, 1}, {0, 1, 1}}), HasSubstr("twice"));
  EXPECT_THAT(check(make_schedule({.stages = 2}), {{0, 2, 1}}), HasSubstr("not possible"));
}

TEST(Schedule, NamesAndMistakes) {
  for (const ScheduleKind kind : kAll) EXPECT_EQ(parse_schedule(name_of(kind)), kind);
  EXPECT_THROW(parse_schedule("zero-buble"), InputError);
  EXPECT_THAT(message_of({.stages = 0}), HasSubstr("at least 1"));
  EXPECT_THAT(message_of({.stages = 2, .replicas = {1}}), HasSubstr("one number per stage"));
  EXPECT_THAT(message_of({.stages = 2, .replicas = {1, 0}}), HasSubstr("0 replicas"));
  EXPECT_THAT(message_of({.kind = ScheduleKind::two_bw, .stages = 4, .micro_batches = 3}),
              HasSubstr("microbatches"));
  EXPECT_THAT(message_of({.stages = 4, .micro_batches = int64_t{1} << 40, .steps = 1 << 20}),
              HasSubstr("too long"));
  EXPECT_THAT(message_of({.stages = 1 << 30}), HasSubstr("more than"));
}

}  // namespace
}  // namespace millrace::parallel
