// Simulated programs against closed formulas.
#include "simulate/job_simulation.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <numeric>

#include "base/error.h"
#include "runtime/trace_file.h"

namespace millrace::simulate {
namespace {

using Kind = CostedStep::Kind;

constexpr double kBandwidth = 1e9;
constexpr double kLatency = 1e-3;

Cluster cluster_of(int machines, int devices, double bandwidth = kBandwidth,
                   double latency = kLatency) {
  Cluster cluster;
  cluster.machines = machines;
  cluster.devices_per_machine = devices;
  cluster.device.memory_bandwidth = 1e12;
  cluster.classes["PIX"] = {bandwidth, latency};
  cluster.network = {bandwidth, latency};
  for (int i = 0; i < devices; ++i) {
    cluster.links.emplace_back(static_cast<size_t>(devices), "PIX");
    cluster.links.back()[static_cast<size_t>(i)] = std::string("X");
  }
  return cluster;
}

CostedStep compute(double seconds, graph::Phase phase = graph::Phase::forward, double busy = 0) {
  return {.phase = phase, .seconds = seconds, .busy_seconds = std::max(busy, seconds)};
}

std::vector<Message> messages_without_copies(const parallel::RouteRequest& routes) {
  return messages_of(parallel::routes_between(routes),
                     [](const parallel::Route& /*route*/, bool /*sends*/) { return 0.0; });
}

// Stages of equal cost, one device each, that exchange one tensor of `bytes`.
struct PipelineCase {
  Cluster cluster;
  Fabric fabric{cluster};
  CostedProgram program;
  SimulatedJob job;

  PipelineCase(parallel::ScheduleKind kind, int stages, int64_t micro_batches, int64_t bytes = 4,
               double forward = 1, double backward = 2)
      : cluster(cluster_of(1, stages, kBandwidth, 0)) {
    const bool split = kind == parallel::ScheduleKind::zero_bubble;
    program.tasks[parallel::Work::forward] = {compute(forward)};
    program.tasks[split ? parallel::Work::backward_input : parallel::Work::backward] = {
        compute(split ? backward / 2 : backward, graph::Phase::backward)};
    if (split)
      program.tasks[parallel::Work::backward_weights] = {
          compute(backward / 2, graph::Phase::backward)};
    program.tasks[parallel::Work::update] = {compute(0, graph::Phase::update)};
    program.persistent_bytes = 1000;
    program.saved_bytes = 10;
    program.scratch_bytes = 1;
    job.fabric = &fabric;
    job.schedule = [=](int64_t steps) {
      return parallel::make_schedule(
          {.kind = kind, .stages = stages, .micro_batches = micro_batches, .steps = steps});
    };
    parallel::RouteRequest routes;
    for (int stage = 0; stage < stages; ++stage) {
      job.devices.push_back({stage});
      job.costs.programs.push_back({&program});
      if (stage + 1 == stages) break;
      routes.edges.push_back({fmt::format("x{}", stage),
                              {{bytes / 4, 1}, graph::DataType::f32},
                              stage,
                              stage + 1,
                              true});
    }
    routes.devices = job.devices;
    job.channels = routes.channels = parallel::channels_between(job.schedule(1));
    job.costs.messages = messages_without_copies(routes);
  }
};

class Schedules : public ::testing::TestWithParam<std::tuple<parallel::ScheduleKind, int, int>> {};

TEST_P(Schedules, BubbleOfDrainedPipelines) {
  const auto [kind, stages, micro_batches] = GetParam();
  PipelineCase pipeline(kind, stages, micro_batches);
  pipeline.job.steps = 3;
  const JobSimulation simulation = build_simulation(pipeline.job);
  const SimulatedSteps steps = steps_of(simulation, simulate(simulation.input));
  const double p = stages, m = micro_batches;
  const double wasted = kind == parallel::ScheduleKind::zero_bubble ? (p - 1) : 3 * (p - 1);
  ASSERT_EQ(steps.seconds.size(), 3u);
  for (const double seconds : steps.seconds) EXPECT_NEAR(seconds, 3 * m + wasted, 1e-5);
  EXPECT_NEAR(steps.bubble, wasted / (3 * m + wasted), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(
    All, Schedules,
    ::testing::Combine(::testing::Values(parallel::ScheduleKind::gpipe,
                                         parallel::ScheduleKind::one_f_one_b_flush,
                                         parallel::ScheduleKind::zero_bubble),
                       ::testing::Values(2, 4, 8), ::testing::Values(8, 16)));

TEST(JobSimulationTest, AsynchronousPipelineGoesAtThePaceOfItsSlowestStage) {
  for (const parallel::ScheduleKind kind :
       {parallel::ScheduleKind::one_f_one_b, parallel::ScheduleKind::ssp}) {
    PipelineCase pipeline(kind, 4, 1);
    CostedProgram slow = pipeline.program;
    slow.tasks[parallel::Work::forward] = {compute(2)};
    pipeline.job.costs.programs[2] = {&slow};
    pipeline.job.steps = 24;
    const JobSimulation simulation = build_simulation(pipeline.job);
    EXPECT_NEAR(steps_of(simulation, simulate(simulation.input)).median, 4, 1e-5);
  }
}

// With two micro-batches in flight in the first stage, each round trip carries two.
TEST(JobSimulationTest, SlowLinkLimitsThePaceToTheRoundTrip) {
  constexpr int64_t kBytes = 4'000'000'000;  // four seconds each way
  PipelineCase pipeline(parallel::ScheduleKind::one_f_one_b, 2, 1, kBytes);
  pipeline.job.steps = 24;
  const JobSimulation simulation = build_simulation(pipeline.job);
  const SimulationResult result = simulate(simulation.input);
  const std::vector<double> steps = steps_of(simulation, result).seconds;
  EXPECT_NEAR(std::accumulate(steps.begin() + 2, steps.end() - 2, 0.0) / 20, (3 + 4 + 3 + 4) / 2.0,
              1e-5);
  EXPECT_NEAR(result.link_bytes[0], 24.0 * kBytes, 1);  // out of the first device
}

// A sender has one buffer, a receiver its slots: a slow reader stops the writer.
TEST(JobSimulationTest, BoundedChannelHoldsTheProducerBack) {
  constexpr int kMicroBatches = 10;
  PipelineCase pipeline(parallel::ScheduleKind::gpipe, 2, kMicroBatches);
  CostedProgram slow = pipeline.program;
  slow.tasks[parallel::Work::forward] = {compute(5)};
  pipeline.job.costs.programs[1] = {&slow};
  const JobSimulation simulation = build_simulation(pipeline.job);
  const SimulationResult result = simulate(simulation.input);
  const int64_t slots = pipeline.job.channels[0].slots;
  std::vector<double> sent, taken;
  for (size_t i = 0; i < simulation.input.items.size(); ++i) {
    const SimulationItem& item = simulation.input.items[i];
    if (item.name == "send" && item.lane == 0) sent.push_back(result.start[i]);
    if (item.name == "receive" && item.category == "activations") taken.push_back(result.end[i]);
  }
  ASSERT_EQ(sent.size(), static_cast<size_t>(kMicroBatches));
  ASSERT_EQ(taken.size(), static_cast<size_t>(kMicroBatches));
  for (int i = 0; i < kMicroBatches; ++i) {
    // Message i leaves its buffer when i - slots have been taken; i + 1 is written then.
    const int64_t before = i - 1 - slots;
    const double made = 1.0 * (i + 1);
    const double room = before < 0 ? 0 : taken[static_cast<size_t>(before)];
    EXPECT_NEAR(sent[static_cast<size_t>(i)], std::max(made, room), 1e-5) << i;
    EXPECT_NEAR(taken[static_cast<size_t>(i)], 1 + 5.0 * i, 1e-5) << i;
  }
}

struct DataParallelCase {
  Cluster cluster;
  Fabric fabric{cluster};
  CostedProgram program;
  SimulatedJob job;

  DataParallelCase(int devices, double bytes, double hidden) : cluster(cluster_of(1, devices)) {
    program.tasks[parallel::Work::forward] = {
        compute(1),
        compute(2, graph::Phase::backward),
        {.kind = Kind::post, .phase = graph::Phase::backward, .bytes = bytes, .ticket = 0},
        compute(hidden, graph::Phase::backward),
        {.kind = Kind::wait, .phase = graph::Phase::update, .ticket = 0},
        compute(0.5, graph::Phase::update)};
    job.fabric = &fabric;
    job.steps = 2;
    job.devices.emplace_back();
    job.costs.programs.emplace_back();
    for (int i = 0; i < devices; ++i) {
      job.devices[0].push_back(i);
      job.costs.programs[0].push_back(&program);
    }
  }

  double step() const {
    const JobSimulation simulation = build_simulation(job);
    return steps_of(simulation, simulate(simulation.input)).median;
  }
};

TEST(JobSimulationTest, RingAllReduce) {
  constexpr double kBytes = 3e9;
  for (const int n : {2, 4, 8}) {
    const double ring = 2.0 * (n - 1) / n * kBytes / kBandwidth + 2 * (n - 1) * kLatency;
    EXPECT_NEAR(DataParallelCase(n, kBytes, 0).step(), 3.5 + ring, 1e-9);
    EXPECT_NEAR(DataParallelCase(n, kBytes, 1).step(), 3.5 + std::max(1.0, ring), 1e-9);
    EXPECT_NEAR(DataParallelCase(n, kBytes, 100).step(), 103.5, 1e-9);
  }
}

TEST(JobSimulationTest, DevicesShareCores) {
  for (const int devices : {1, 2, 4, 8}) {
    DataParallelCase shared(devices, 1, 0);
    shared.program.tasks[parallel::Work::forward] = {compute(3)};
    shared.job.host.cores = 2;
    EXPECT_NEAR(shared.step(), 3 * std::max(1.0, devices / 2.0), 1e-9) << devices;
    shared.job.host.threads_per_device = 2;
    EXPECT_NEAR(shared.step(), 3 * devices, 1e-9) << devices;
  }
}

// The first and the third device share a core, the second has one to itself.
TEST(JobSimulationTest, ThreadsKeepToTheirCores) {
  DataParallelCase shared(3, 1, 0);
  shared.program.tasks[parallel::Work::forward] = {compute(3)};
  shared.job.host.cores = 3;  // so that only the teams matter
  shared.job.host.teams = {{0}, {1}, {0}};
  const JobSimulation simulation = build_simulation(shared.job);
  const SimulationResult result = simulate(simulation.input);
  EXPECT_NEAR(steps_of(simulation, result).median, 6, 1e-9);
  EXPECT_NEAR(result.lane_busy[static_cast<size_t>(simulation.compute_lanes[1])], 6, 1e-9);
  EXPECT_NEAR(result.lane_busy[static_cast<size_t>(simulation.compute_lanes[2])], 12, 1e-9);
}

TEST(JobSimulationTest, DevicesAtWorkTogetherTakeTheTimeMeasuredSo) {
  DataParallelCase shared(2, 1, 0);
  shared.job.host.cores = 2;
  shared.job.host.busy_devices = 2;
  shared.program.tasks[parallel::Work::forward] = {compute(3, graph::Phase::forward, 4.2)};
  EXPECT_NEAR(shared.step(), 4.2, 1e-9);
  shared.job.devices[0].pop_back();
  shared.job.costs.programs[0].pop_back();
  EXPECT_NEAR(shared.step(), 3, 1e-9);
}

TEST(JobSimulationTest, SumsTakeCoresFromComputing) {
  DataParallelCase shared(2, 1e9, 4);
  const Cluster fast = cluster_of(1, 2, kBandwidth, 0);
  const Fabric fabric(fast);
  shared.job.fabric = &fabric;
  // One second each of summing beside four of computing, on as many cores as devices.
  shared.job.host.cores = 2;
  EXPECT_NEAR(shared.step(), 3.5 + 4 + 1, 1e-9);
  shared.job.host.cores = 4;
  EXPECT_NEAR(shared.step(), 3.5 + 4, 1e-9);
}

// Half a second to copy what is summed into one buffer, and as long to copy it back.
TEST(JobSimulationTest, SumsOfSeveralTensorsAreCopiedIntoOneBuffer) {
  DataParallelCase shared(2, 1e9, 0);
  const Cluster fast = cluster_of(1, 2, kBandwidth, 0);
  const Fabric fabric(fast);
  shared.job.fabric = &fabric;
  shared.job.host.cores = 4;
  shared.job.costs.packing_rate = 2e9;
  EXPECT_NEAR(shared.step(), 3.5 + 1, 1e-9);
  shared.program.tasks[parallel::Work::forward][2].packed_bytes = 1e9;
  EXPECT_NEAR(shared.step(), 3.5 + 1 + 1, 1e-9);
}

// Two devices that compute take all of the memory, and so do their sums: half of each in turn.
TEST(JobSimulationTest, SumsTakeMemoryFromComputing) {
  DataParallelCase shared(2, 1e9, 4);
  const Cluster fast = cluster_of(1, 2, kBandwidth, 0);
  const Fabric fabric(fast);
  shared.job.fabric = &fabric;
  shared.job.host.cores = 4;
  shared.job.host.busy_devices = 2;
  EXPECT_NEAR(shared.step(), 3.5 + 4 + 1, 1e-9);
}

TEST(JobSimulationTest, MemoryOverTime) {
  PipelineCase pipeline(parallel::ScheduleKind::one_f_one_b_flush, 4, 8);
  const JobSimulation simulation = build_simulation(pipeline.job);
  const SimulationResult result = simulate(simulation.input);
  for (int stage = 0; stage < 4; ++stage) {
    EXPECT_NEAR(result.peak_memory[static_cast<size_t>(stage)], 1000 + 10 * (4 - stage) + 1, 1e-9);
    EXPECT_NEAR(result.memory[static_cast<size_t>(stage)].back().bytes, 1000, 1e-9);
  }
}

TEST(JobSimulationTest, TraceIsThatOfARun) {
  PipelineCase pipeline(parallel::ScheduleKind::gpipe, 3, 4);
  const JobSimulation simulation = build_simulation(pipeline.job);
  const SimulationResult result = simulate(simulation.input);
  const runtime::TraceLog log =
      runtime::parse_trace(runtime::trace_to_json(trace_log(simulation, result)), "simulated");
  ASSERT_EQ(log.devices.size(), 3u);
  double forward = 0, backward = 0, waited = 0;
  for (const runtime::TraceEvent& event : log.events) {
    const double seconds = 1e-9 * static_cast<double>(event.end - event.begin);
    if (event.category == runtime::TraceCategory::forward) forward += seconds;
    if (event.category == runtime::TraceCategory::backward) backward += seconds;
    if (event.category == runtime::TraceCategory::wait) waited += seconds;
  }
  EXPECT_NEAR(forward, 12, 1e-5);
  EXPECT_NEAR(backward, 24, 1e-5);
  // Until the first and between the last forward and backward; the rest comes after the last task.
  EXPECT_GT(waited, 3);
  EXPECT_LE(forward + backward + waited, 3 * result.seconds + 1e-5);
}

// A stage's backward task that updates weights on the way is one task in a trace; a program that
// runs whole tells its phases apart, and each of its steps is a segment of its own.
TEST(JobSimulationTest, TraceNamesTasksAsARunDoes) {
  using Category = runtime::TraceCategory;
  PipelineCase pipeline(parallel::ScheduleKind::one_f_one_b, 2, 1);
  pipeline.job.steps = 3;
  pipeline.program.tasks[parallel::Work::backward].push_back(compute(1, graph::Phase::update));
  pipeline.program.tasks[parallel::Work::update].clear();
  const auto events_of = [](const SimulatedJob& job) {
    const JobSimulation simulation = build_simulation(job);
    return trace_log(simulation, simulate(simulation.input)).events;
  };
  for (const runtime::TraceEvent& event : events_of(pipeline.job)) {
    EXPECT_NE(event.category, Category::update);
  }
  pipeline.program.tasks[parallel::Work::forward].insert(
      pipeline.program.tasks[parallel::Work::forward].end(),
      pipeline.program.tasks[parallel::Work::backward].begin(),
      pipeline.program.tasks[parallel::Work::backward].end());
  pipeline.job.schedule = nullptr;
  int updates = 0;
  for (const runtime::TraceEvent& event : events_of(pipeline.job)) {
    EXPECT_LE(event.micro_batch, 0);
    updates += event.category == Category::update ? 1 : 0;
  }
  EXPECT_EQ(updates, 2 * 3);
}

TEST(JobSimulationTest, ManyDevices) {
  constexpr int kStages = 16, kMembers = 64;
  const Cluster cluster = cluster_of(kStages * kMembers / 8, 8, kBandwidth, 1e-6);
  CostedProgram program;
  program.tasks[parallel::Work::forward] = {compute(0.1)};
  program.tasks[parallel::Work::backward] = {compute(0.2, graph::Phase::backward)};
  for (int64_t bucket = 0; bucket < 8; ++bucket) {
    program.tasks[parallel::Work::update].push_back(compute(0, graph::Phase::update));
    program.tasks[parallel::Work::update].push_back(
        {.kind = Kind::post, .phase = graph::Phase::update, .bytes = 1e6, .ticket = bucket});
  }
  for (int64_t bucket = 0; bucket < 8; ++bucket) {
    program.tasks[parallel::Work::update].push_back(
        {.kind = Kind::wait, .phase = graph::Phase::update, .ticket = bucket});
    program.tasks[parallel::Work::update].push_back(compute(0.01, graph::Phase::update));
  }
  SimulatedJob job;
  const Fabric fabric(cluster);
  job.fabric = &fabric;
  job.steps = 2;
  parallel::RouteRequest routes;
  parallel::ScheduleRequest request = {.kind = parallel::ScheduleKind::one_f_one_b_flush,
                                       .stages = kStages,
                                       .micro_batches = 32,
                                       .replicas = std::vector<int>(kStages, kMembers)};
  job.schedule = [=](int64_t steps) mutable {
    request.steps = steps;
    return parallel::make_schedule(request);
  };
  for (int stage = 0; stage < kStages; ++stage) {
    job.devices.emplace_back(kMembers);
    std::iota(job.devices.back().begin(), job.devices.back().end(), stage * kMembers);
    job.costs.programs.emplace_back(kMembers, &program);
    if (stage > 0) {
      routes.edges.push_back({fmt::format("x{}", stage),
                              {{kMembers, 100}, graph::DataType::f32},
                              stage - 1,
                              stage,
                              true});
    }
  }
  routes.devices = job.devices;
  job.channels = routes.channels = parallel::channels_between(job.schedule(1));
  job.costs.messages = messages_without_copies(routes);
  const JobSimulation simulation = build_simulation(job);
  const SimulatedSteps steps = steps_of(simulation, simulate(simulation.input));
  EXPECT_GT(steps.median, 0.3 * (32 + kStages - 1));
  EXPECT_LT(steps.median, 0.3 * (32 + kStages - 1) + 1);
}

}  // namespace
}  // namespace millrace::simulate
