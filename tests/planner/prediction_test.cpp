#include "planner/cost/prediction.h"

#include <gmock/gmock.h>

#include "made_up.h"
#include "parallel/simulation.h"
#include "planner/cost/boundary.h"
#include "planner/cost/memory_needs.h"

namespace millrace::planner {
namespace {

using ::testing::HasSubstr;

Prediction predicted(const NetworkWork& network, const PlannedJob& job,
                     const simulate::Cluster& cluster, const CostConstants& constants) {
  return predict(CostContext{network, cluster, constants, constants.software[0]}, job);
}

TEST(PredictionTest, OperatorsTakeTheLongerOfComputingAndMoving) {
  const simulate::Cluster cluster = made_up::cluster(1, 1);
  OperatorConstants constants{1, 2, 0.5, 0.25, 0.5, 1, 1, 0, 0};
  const auto seconds = [&](WorkKind kind, double operations, double elements) {
    return seconds_of({kind, {0, operations}, {0, elements}}, 2, cluster.device,
                      graph::DataType::f32, constants);
  };
  EXPECT_DOUBLE_EQ(seconds(WorkKind::convolution, 1e12, 1), 2);
  EXPECT_DOUBLE_EQ(seconds(WorkKind::convolution3, 1e12, 1), 1);
  EXPECT_DOUBLE_EQ(seconds(WorkKind::pointwise, 1e12, 1), 4);
  EXPECT_DOUBLE_EQ(seconds(WorkKind::linear, 1e12, 1), 8);
  EXPECT_DOUBLE_EQ(seconds(WorkKind::linear, 1e12, 1e12), 16);
  EXPECT_DOUBLE_EQ(seconds(WorkKind::memory, 1e15, 1e12), 16);
  constants.kernel_seconds = 3;
  EXPECT_DOUBLE_EQ(seconds(WorkKind::linear, 1e12, 1), 11);
  EXPECT_DOUBLE_EQ(seconds(WorkKind::memory, 0, 0), 0);  // a view
}

// 16-bit numbers on a device without a rate for them, or with a poor one, cost what float32 does.
TEST(PredictionTest, HalfIsNeverSlowerThanFloat) {
  simulate::Cluster cluster = made_up::cluster(1, 1);
  const OperatorConstants constants{2, 2, 2, 2, 1, 0.5, 0.5, 0, 0};
  const auto seconds = [&](graph::DataType precision) {
    return seconds_of({WorkKind::convolution3, {0, 1e12}, {0, 1}}, 2, cluster.device, precision,
                      constants);
  };
  EXPECT_DOUBLE_EQ(seconds(graph::DataType::f32), 1);
  EXPECT_DOUBLE_EQ(seconds(graph::DataType::f16), 1);
  EXPECT_DOUBLE_EQ(seconds(graph::DataType::bf16), 1);
  cluster.device.fp16_operations = 8e12;
  EXPECT_DOUBLE_EQ(seconds(graph::DataType::f16), 0.5);
}

// One sample a device: 3 seconds of computing, then a ring sum of 4 bytes a parameter.
TEST(PredictionTest, DataParallelWithoutOverlapIsASum) {
  const simulate::Cluster cluster = made_up::cluster(1, 4, 1e9);
  const NetworkWork network = made_up::network({0.25, 0.75}, 50e6);
  CostConstants constants = made_up::constants();
  PlannedJob job;
  job.stages = {{{0, 1, 2, 3}, 0, 2}};
  const double reduce = 2 * 3.0 / 4 * 100e6 * 4 / 1e9;
  EXPECT_NEAR(predicted(network, job, cluster, constants).seconds_per_step, 3 + reduce, 1e-9);
  constants.software[0].update_passes = 5;
  const double update = 100e6 * 4 * 5 / 1e12;
  EXPECT_NEAR(predicted(network, job, cluster, constants).seconds_per_step, 3 + reduce + update,
              1e-9);
  job.optimizer_states = 2;  // one more to read and to write
  EXPECT_NEAR(predicted(network, job, cluster, constants).seconds_per_step,
              3 + reduce + update * 7 / 5, 1e-9);
}

// Four messages wait for the link at once; the first does not share it with the others.
TEST(PredictionTest, MessagesOfAChannelFollowEachOther) {
  const simulate::Cluster cluster = made_up::cluster(2, 1, 1e10, 1e8);
  const NetworkWork network = made_up::network({0.001, 0.001}, 0, 1e7);
  PlannedJob job = made_up::straight(2, 2);
  job.schedule = parallel::ScheduleKind::gpipe;
  job.micro_batches = 4;
  job.batch = 4;
  const Prediction prediction = predicted(network, job, cluster, made_up::constants());
  const double each = 2 * 1e7 * 4 / 1e8;  // of two samples
  double before = 0;
  int found = 0;
  for (size_t i = 0; i < prediction.simulation.input.items.size() && found < 4; ++i) {
    if (prediction.simulation.input.items[i].name != "activations") continue;
    EXPECT_NEAR(prediction.result.end[i] - prediction.result.start[i], each, 1e-9);
    EXPECT_GE(prediction.result.start[i], before);
    before = prediction.result.end[i];
    ++found;
  }
  EXPECT_EQ(found, 4);
}

// Replicas that share the update scatter the sums and gather the weights: once around the ring
// each.
TEST(PredictionTest, SharedUpdatesScatterAndGather) {
  simulate::Cluster cluster = made_up::cluster(1, 4, 1e9);
  constexpr double kLatency = 0.01;
  cluster.classes["PIX"].latency = kLatency;
  const NetworkWork network = made_up::network({0.25, 0.75}, 50e6);
  const CostConstants constants = made_up::constants();
  PlannedJob job;
  job.stages = {{{0, 1, 2, 3}, 0, 2}};
  job.share_optimizer = true;
  const double once = 3 * kLatency + 3.0 / 4 * 100e6 * 4 / 1e9;
  EXPECT_NEAR(predicted(network, job, cluster, constants).seconds_per_step, 3 + 2 * once, 1e-9);
}

// The second layer is divided: its weights are nobody else's, its input is gathered and the
// gradient of that is scattered.
TEST(PredictionTest, DividedLayersWaitForWhatTheyExchange) {
  const simulate::Cluster cluster = made_up::cluster(1, 4, 1e9);
  NetworkWork network = made_up::network({0.25, 0.75}, 50e6);
  network.layers[1].split_parameters = 50e6;
  const OperatorWork gather{
      WorkKind::exchange, {}, {0, 1e9}, false, simulate::Collective::all_gather};
  network.layers[1].forward.push_back(gather);
  network.layers[1].backward.push_back(gather);
  network.layers[1].backward.back().collective = simulate::Collective::reduce_scatter;
  const CostConstants constants = made_up::constants();
  PlannedJob job;
  job.stages = {{{0, 1, 2, 3}, 0, 2}};
  const double exchanged = 2 * 3.0 / 4 * 4e9 / 1e9, summed = 2 * 3.0 / 4 * 50e6 * 4 / 1e9;
  EXPECT_NEAR(predicted(network, job, cluster, constants).seconds_per_step, 3 + exchanged + summed,
              1e-9);
}

// The second layer's gradients are ready after 1 + 1.5 seconds; with everything overlapped the
// sums run behind each other on the link, which is what limits the step.
TEST(PredictionTest, DataParallelWithOverlapHidesTheSums) {
  const simulate::Cluster cluster = made_up::cluster(1, 4, 1e9);
  const NetworkWork network = made_up::network({0.25, 0.75}, 500e6);
  CostConstants constants = made_up::constants();
  constants.software[0].overlap = 1;
  PlannedJob job;
  job.stages = {{{0, 1, 2, 3}, 0, 2}};
  const double reduce = 2 * 3.0 / 4 * 500e6 * 4 / 1e9;
  EXPECT_NEAR(predicted(network, job, cluster, constants).seconds_per_step, 2.5 + 2 * reduce, 1e-9);
}

TEST(PredictionTest, FlushedPipelinesHaveTheirBubble) {
  const simulate::Cluster cluster = made_up::cluster(1, 4, 1e15);
  const NetworkWork network = made_up::network(std::vector<double>(8, 0.5));
  const CostConstants constants = made_up::constants();
  for (const parallel::ScheduleKind order :
       {parallel::ScheduleKind::gpipe, parallel::ScheduleKind::one_f_one_b_flush}) {
    PlannedJob job = made_up::straight(4, 8);
    job.schedule = order;
    job.batch = 2;  // 8 samples a step
    job.micro_batches = 8;
    const Prediction prediction = predicted(network, job, cluster, constants);
    EXPECT_NEAR(prediction.seconds_per_step, 3.0 * (8 + 3), 1e-6);
    EXPECT_NEAR(prediction.samples_per_second, 8 / 33.0, 1e-6);
  }
}

// Qi et al., "Zero Bubble Pipeline Parallelism": (p - 1)(F + B - W), where B is the gradient of the
// inputs and W that of the weights; F = B = W = 1 here.
TEST(PredictionTest, SplitBackwardsFillTheBubble) {
  const simulate::Cluster cluster = made_up::cluster(1, 4, 1e15);
  const NetworkWork network = made_up::network(std::vector<double>(8, 0.5));
  const CostConstants constants = made_up::constants();
  for (const int micro_batches : {4, 8, 16}) {
    PlannedJob job = made_up::straight(4, 8);
    job.schedule = parallel::ScheduleKind::zero_bubble;
    job.batch = micro_batches / 4.0;
    job.micro_batches = micro_batches;
    EXPECT_NEAR(predicted(network, job, cluster, constants).seconds_per_step,
                3.0 * micro_batches + 3 * (1 + 1 - 1), 1e-6)
        << micro_batches;
  }
}

// Narayanan et al., Megatron-LM: with v stages a device the bubble is (p - 1)(F + B) / v.
TEST(PredictionTest, StagesInTurnDivideTheBubble) {
  const simulate::Cluster cluster = made_up::cluster(1, 4, 1e15);
  const NetworkWork network = made_up::network(std::vector<double>(16, 0.25));
  const CostConstants constants = made_up::constants();
  for (const int times : {1, 2, 4}) {
    PlannedJob job = made_up::straight(4 * times, 16);
    for (size_t i = 0; i < job.stages.size(); ++i)
      job.stages[i].devices = {static_cast<int>(i) % 4};
    job.schedule = parallel::ScheduleKind::interleaved;
    job.batch = 2;
    job.micro_batches = 8;
    EXPECT_EQ(job.turns(), 4);
    EXPECT_NEAR(predicted(network, job, cluster, constants).seconds_per_step,
                3.0 * 8 + 3.0 * 3 / times, 1e-6)
        << times;
  }
}

TEST(PredictionTest, PipelinesThatNeverDrainHaveNone) {
  const simulate::Cluster cluster = made_up::cluster(1, 4, 1e15);
  const NetworkWork network = made_up::network(std::vector<double>(8, 0.5));
  const CostConstants constants = made_up::constants();
  for (const parallel::ScheduleKind order :
       {parallel::ScheduleKind::one_f_one_b, parallel::ScheduleKind::two_bw}) {
    PlannedJob job = made_up::straight(4, 8);
    job.schedule = order;
    job.batch = 2;
    job.micro_batches = 8;
    EXPECT_NEAR(predicted(network, job, cluster, constants).seconds_per_step, 3.0 * 8, 1e-6);
  }
}

// Replicas that take turns: the slower of three devices that share one stage's mini-batches and one
// that runs the other for all of them.
TEST(PredictionTest, RoundRobinPaceIsTheSlowestStage) {
  const simulate::Cluster cluster = made_up::cluster(1, 4, 1e15);
  const CostConstants constants = made_up::constants();
  PlannedJob job;
  job.stages = {{{0, 1, 2}, 0, 1}, {{3}, 1, 2}};
  job.schedule = parallel::ScheduleKind::one_f_one_b;
  job.round_robin = true;
  job.batch = 1;
  EXPECT_NEAR(predicted(made_up::network({3, 0.5}), job, cluster, constants).seconds_per_step, 3,
              1e-3);
  EXPECT_NEAR(predicted(made_up::network({1, 2}), job, cluster, constants).seconds_per_step, 6,
              1e-3);
}

// Three devices compute 12 of 36 seconds, the fourth the other 24.
TEST(PredictionTest, IdleTimeIsThatOfAllDevices) {
  const simulate::Cluster cluster = made_up::cluster(1, 4, 1e15);
  PlannedJob job;
  job.stages = {{{0, 1, 2}, 0, 1}, {{3}, 1, 2}};
  job.schedule = parallel::ScheduleKind::gpipe;
  const CostConstants constants = made_up::constants();
  const Prediction prediction = predicted(made_up::network({3, 2}), job, cluster, constants);
  EXPECT_NEAR(prediction.seconds_per_step, 36, 1e-6);
  EXPECT_NEAR(prediction.bubble, (3 * 24.0 / 36 + 12.0 / 36) / 4, 1e-6);
}

TEST(PredictionTest, ReadingImagesCanBeTheLimit) {
  simulate::Cluster cluster = made_up::cluster(1, 2, 1e15);
  cluster.host_cores = 4;
  CostConstants constants = made_up::constants();
  constants.software[0].loader_rate = 0.05;
  PlannedJob job;
  job.stages = {{{0, 1}, 0, 1}};
  const NetworkWork network = made_up::network({1});
  EXPECT_NEAR(predicted(network, job, cluster, constants).seconds_per_step, 3, 1e-6);
  job.real_data = true;
  const Prediction prediction = predicted(network, job, cluster, constants);
  EXPECT_NEAR(prediction.seconds_per_step, 2 / (4 * 0.05), 1e-6);
  EXPECT_EQ(prediction.limited_by, "reading images");
}

// Of what is above a V100's rate, twice as much is 2^0.5 times as fast; below nothing changes.
TEST(PredictionTest, RatesBeyondThoseMeasuredCountLess) {
  OperatorConstants constants;
  constants.beyond = 0.5;
  constants.kernel_seconds = 0;
  const OperatorWork moving = {WorkKind::memory, {}, {0, 1e6}};
  const OperatorWork computing = {WorkKind::linear, {0, 1e12}, {0, 1}};
  const auto seconds = [&](const OperatorWork& work, double times) {
    simulate::DeviceKind device;
    device.fp32_operations = 15.7e12 * times;
    device.memory_bandwidth = 900e9 * times;
    return seconds_of(work, 10, device, graph::DataType::f32, constants);
  };
  for (const OperatorWork& work : {moving, computing}) {
    EXPECT_NEAR(seconds(work, 1) / seconds(work, 4), 2, 1e-9);
    EXPECT_NEAR(seconds(work, 0.25) / seconds(work, 1), 4, 1e-9);
  }
}

TEST(PredictionTest, MemoryOfStages) {
  const simulate::Cluster cluster = made_up::cluster(1, 4);
  const NetworkWork network = made_up::network(std::vector<double>(4, 1.0), 1000, 10);
  const CostConstants constants = made_up::constants();
  PlannedJob job = made_up::straight(4, 4);
  job.batch = 2;
  job.micro_batches = 8;  // one sample each
  const auto memory = [&](int stage) {
    return memory_needs({network, cluster, constants, constants.software[0]}, job).stages[stage];
  };
  job.schedule = parallel::ScheduleKind::one_f_one_b_flush;
  EXPECT_DOUBLE_EQ(memory(1).weights, 4000);
  EXPECT_DOUBLE_EQ(memory(1).gradients, 4000);
  EXPECT_DOUBLE_EQ(memory(1).optimizer, 4000);
  EXPECT_DOUBLE_EQ(memory(1).activations, 4 * (100 + 10) * 3);
  EXPECT_DOUBLE_EQ(memory(3).activations, 4 * (100 + 10));
  job.schedule = parallel::ScheduleKind::gpipe;
  EXPECT_DOUBLE_EQ(memory(1).activations, 4 * (100 + 10) * 8);
  job.schedule = parallel::ScheduleKind::two_bw;
  EXPECT_DOUBLE_EQ(memory(1).weights, 8000);
  job.schedule = parallel::ScheduleKind::ssp;
  EXPECT_DOUBLE_EQ(memory(0).weights, 8000);  // an update is of all eight
  EXPECT_DOUBLE_EQ(memory(3).weights, 4000);
  job.micro_batches = 1;
  EXPECT_DOUBLE_EQ(memory(0).weights, 16000);
  job.micro_batches = 8;
  job.recompute = true;
  EXPECT_DOUBLE_EQ(memory(1).activations, 4 * (100 + 10 * 3));
}

// Nine layers of 100 on one device: eight tensors of 10 between them, and one layer in full.
TEST(PredictionTest, RecomputationKeepsWhatEntersItsSegments) {
  const simulate::Cluster cluster = made_up::cluster(1, 1);
  const NetworkWork network = made_up::network(std::vector<double>(9, 1.0), 0, 10);
  const CostConstants constants = made_up::constants();
  PlannedJob job = made_up::straight(1, 9);
  const auto bytes = [&] {
    return memory_needs({network, cluster, constants, constants.software[0]}, job)
        .stages[0]
        .activations;
  };
  EXPECT_DOUBLE_EQ(bytes(), 4 * 900);
  job.recompute = true;
  EXPECT_DOUBLE_EQ(bytes(), 4 * (8 * 10 + 100));
}

// PipeDream's warm-up: seven replicas in front of one keep two mini-batches, the last one.
TEST(PredictionTest, MiniBatchesInFlightWithTurns) {
  PlannedJob job;
  job.stages = {{{0, 1, 2, 3, 4, 5, 6}, 0, 1}, {{7}, 1, 2}};
  job.schedule = parallel::ScheduleKind::one_f_one_b;
  job.round_robin = true;
  const parallel::Schedule schedule = whole_schedule_of(job);
  EXPECT_EQ(schedule.rows[schedule.row_of(0, 0)].in_flight, 2);
  EXPECT_EQ(schedule.rows[schedule.row_of(1, 0)].in_flight, 1);
}

// What is under way and kept is all there in the steps that memory is counted by.
TEST(PredictionTest, MoreStepsKeepNoMore) {
  for (const parallel::ScheduleKind order :
       {parallel::ScheduleKind::gpipe, parallel::ScheduleKind::one_f_one_b_flush,
        parallel::ScheduleKind::zero_bubble, parallel::ScheduleKind::one_f_one_b,
        parallel::ScheduleKind::ssp, parallel::ScheduleKind::two_bw}) {
    for (const int stages : {1, 2, 3, 5}) {
      for (const int replicas : {1, 3}) {
        PlannedJob job = made_up::straight(stages, 10);
        job.schedule = order;
        job.round_robin = replicas > 1 && order == parallel::ScheduleKind::one_f_one_b;
        if (job.round_robin) job.stages[0].devices.resize(replicas);
        job.micro_batches =
            order == parallel::ScheduleKind::ssp || order == parallel::ScheduleKind::one_f_one_b
                ? 1
                : 8;
        const parallel::Schedule counted = whole_schedule_of(job), longer = schedule_of(job, 60);
        for (size_t row = 0; row < longer.rows.size(); ++row) {
          EXPECT_EQ(counted.rows[row].in_flight, longer.rows[row].in_flight)
              << parallel::name_of(order) << " row " << row << " of " << stages << " stages";
          EXPECT_EQ(counted.rows[row].versions, longer.rows[row].versions);
        }
      }
    }
  }
}

// The same schedule in the tables' own simulation, without messages.
TEST(PredictionTest, PaceIsThatOfTheTables) {
  const simulate::Cluster cluster = made_up::cluster(1, 4, 1e15);
  const NetworkWork network = made_up::network({1, 2, 1.5, 0.5});
  const CostConstants constants = made_up::constants();
  const double forward[] = {1, 2, 1.5, 0.5};
  parallel::Costs costs;
  costs.task = [&](int stage, const parallel::Task& task) {
    return task.work == parallel::Work::update
               ? 0
               : forward[stage] * (task.work == parallel::Work::backward ? 2 : 1);
  };
  for (const parallel::ScheduleKind order :
       {parallel::ScheduleKind::gpipe, parallel::ScheduleKind::one_f_one_b_flush,
        parallel::ScheduleKind::zero_bubble, parallel::ScheduleKind::one_f_one_b,
        parallel::ScheduleKind::two_bw}) {
    PlannedJob job = made_up::straight(4, 4);
    job.schedule = order;
    job.batch = 2;
    job.micro_batches = 8;
    parallel::ScheduleRequest request;
    request.kind = order;
    request.stages = 4;
    request.micro_batches = 8;
    const auto total = [&](int64_t steps) {
      request.steps = steps;
      const parallel::Schedule table = parallel::make_schedule(request);
      return parallel::simulate(table, parallel::channels_between(table, 64), costs).seconds;
    };
    EXPECT_NEAR(predicted(network, job, cluster, constants).seconds_per_step,
                (total(24) - total(12)) / 12, 1e-6)
        << parallel::name_of(order);
  }
}

TEST(PredictionTest, SaysWhatDoesNotFit) {
  const simulate::Cluster cluster = made_up::cluster(1, 1);
  const CostConstants constants = made_up::constants();
  PlannedJob job;
  job.stages = {{{0}, 0, 1}};
  const Prediction prediction = predicted(made_up::network({1}, 1e9), job, cluster, constants);
  EXPECT_FALSE(prediction.fits);
  EXPECT_THAT(prediction.reason, HasSubstr("Stage 0 needs 11.18 GiB"));
  EXPECT_TRUE(predicted(made_up::network({1}, 1e6), job, cluster, constants).fits);
}

TEST(PredictionTest, HeadsFollowTheirFormulas) {
  const NetworkWork network = made_up::network({1});
  simulate::Cluster cluster = made_up::cluster(1, 8);
  const CostConstants constants = made_up::constants();
  SoftwareConstants software = constants.software[0];
  software.head_logit_passes = software.head_weight_passes = 0;
  PlannedJob job;
  job.stages = {{{0, 1, 2, 3, 4, 5, 6, 7}, 0, 1}};
  job.batch = 128;
  job.head.classes = 8e6;
  const auto cost = [&](PlannedHead::Parallel parallel) {
    job.head.parallel = parallel;
    return head_cost({network, cluster, constants, software}, job);
  };
  const double products = 6 * 128.0 * 512 * 8e6;
  const HeadCost replicated = cost(PlannedHead::Parallel::data);
  EXPECT_DOUBLE_EQ(replicated.compute, products / 1e12);
  EXPECT_DOUBLE_EQ(replicated.gradient_bytes, 8e6 * 512 * 4);
  EXPECT_DOUBLE_EQ(replicated.weight_bytes, 8e6 * 512 * 4 * 2);
  const HeadCost divided = cost(PlannedHead::Parallel::model);
  EXPECT_DOUBLE_EQ(divided.compute, products / 1e12);
  EXPECT_DOUBLE_EQ(divided.gradient_bytes, 0);
  EXPECT_DOUBLE_EQ(divided.gather_bytes, 1024.0 * 512 * 4);
  EXPECT_DOUBLE_EQ(divided.weight_bytes, 1e6 * 512 * 4 * 2);
  const HeadCost sampled = cost(PlannedHead::Parallel::sampled);
  EXPECT_NEAR(sampled.compute, products / 1e13, 1e-12);
  EXPECT_DOUBLE_EQ(sampled.weight_bytes, divided.weight_bytes);
}

TEST(PredictionTest, BoundariesShareTheNetworkCard) {
  const simulate::Cluster cluster = made_up::cluster(2, 4, 1e10, 1e9);
  const simulate::Fabric fabric(cluster);
  const PlannedStage first{{0, 1, 2, 3}}, second{{4, 5, 6, 7}}, pair{{0, 1}}, other{{2, 3}};
  EXPECT_DOUBLE_EQ(boundary_seconds(first, second, 1e9, cluster, fabric, 1), 1);
  EXPECT_DOUBLE_EQ(boundary_seconds(first, second, 1e9, cluster, fabric, 0.5), 2);
  EXPECT_DOUBLE_EQ(boundary_seconds(pair, other, 1e9, cluster, fabric, 1), 0.05);
  const PlannedStage half{{2, 3, 4, 5}};
  EXPECT_DOUBLE_EQ(boundary_seconds(pair, half, 1e9, cluster, fabric, 1), 0.5);
}

}  // namespace
}  // namespace millrace::planner
