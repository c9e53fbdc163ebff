// Questions asked again with something changed: sweeps, explanations, and the memory of hosts.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <set>

#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
#include "made_up.h"
#include "planner/cost/memory_needs.h"
#include "planner/search/explain.h"
#include "planner/search/sweep.h"

namespace millrace::planner {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Data parallel: each device takes three seconds for its sample, then sums 400 MB over 1 GB/s.
PlanQuestion question(int devices, double link = 1e9) {
  PlanQuestion question;
  question.inputs.network = made_up::network({0.25, 0.75}, 50e6);
  question.inputs.cluster = made_up::cluster(1, 4, link, 1e8);
  question.inputs.cluster.device.memory_bytes = 1e12;
  question.inputs.constants = made_up::constants();
  question.inputs.software = question.inputs.constants.software[0];
  question.given.emplace();
  question.given->stages = {{{}, 0, 2}};
  return with_devices(question, devices, "--devices");
}

double seconds_with(int devices, double rate) {
  return devices == 1 ? 3 : 3 + 2.0 * (devices - 1) / devices * 400e6 / rate;
}

TEST(SweepTest, ValuesAreReadAsTheyAreWritten) {
  EXPECT_THAT(parse_sweep("devices=1..64", "--sweep").values, ElementsAre(1, 2, 4, 8, 16, 32, 64));
  EXPECT_THAT(parse_sweep("devices=3..20", "--sweep").values, ElementsAre(3, 6, 12, 20));
  EXPECT_THAT(parse_sweep("batch=8..24/8", "--sweep").values, ElementsAre(8, 16, 24));
  EXPECT_THAT(parse_sweep("bandwidth=1e9,2.5e9", "--sweep").values, ElementsAre(1e9, 2.5e9));
  for (const char* text :
       {"devices", "devices=", "cores=1..2", "devices=0..4", "devices=1.5", "devices=4..2",
        "devices=1..x", "batch=1..1e6/1", "devices=nan", "devices=1..64/0", "=1", ""}) {
    EXPECT_THROW(parse_sweep(text, "--sweep"), InputError) << text;
  }
}

TEST(SweepTest, DevicesBeyondTheClusterComeInMachinesLikeItsOwn) {
  const PlanQuestion one = question(1);
  const std::vector<SweepPoint> points =
      sweep(one, parse_sweep("devices=1..8", "--sweep"), "--sweep");
  ASSERT_EQ(points.size(), 4u);
  for (const SweepPoint& point : points) {
    const double seconds = seconds_with(point.devices, point.devices > 4 ? 1e8 : 1e9);
    EXPECT_NEAR(point.answer.seconds_per_step, seconds, 1e-9) << point.devices;
    EXPECT_NEAR(point.efficiency, 3 / seconds, 1e-9);
    EXPECT_EQ(point.devices, point.value);
  }
  PlanQuestion alone = one;
  alone.inputs.cluster.network = {};
  EXPECT_THROW(with_devices(alone, 5, "--sweep"), InputError);
}

TEST(SweepTest, BatchAndBandwidthChangeOneThing) {
  const PlanQuestion four = question(4);
  for (const SweepPoint& point : sweep(four, parse_sweep("batch=1,3", "--sweep"), "--sweep")) {
    EXPECT_NEAR(point.answer.seconds_per_step, 3 * point.value + seconds_with(4, 1e9) - 3, 1e-9);
  }
  for (const SweepPoint& point :
       sweep(four, parse_sweep("bandwidth=1e8..4e8", "--sweep"), "--sweep")) {
    EXPECT_NEAR(point.answer.seconds_per_step, seconds_with(4, point.value), 1e-9);
  }
}

// 1281167 images at 4/3.6 a second on four devices of 2 EUR an hour.
TEST(SweepTest, TableAndPrice) {
  const SweepAxis axis = parse_sweep("devices=2,4", "--sweep");
  const Json json = describe(axis, sweep(question(1), axis, "--sweep"), 2.0);
  const double hours = 1281167 / (4 / seconds_with(4, 1e9)) / 3600;
  EXPECT_NEAR(json["points"][1]["epoch_cost"].get<double>(), hours * 4 * 2, 1e-6);
  const std::string csv = sweep_csv(json);
  const std::vector<std::string> lines = split(csv, '\n');
  EXPECT_THAT(lines[0], HasSubstr("devices_value,devices,fits,shape,"));
  EXPECT_THAT(lines[2], HasSubstr("4.0,4,true,\"data parallel on 4\","));
  EXPECT_EQ(split(lines[0], ',').size(), split(lines[1], ',').size());
  EXPECT_THAT(format_sweep(json), HasSubstr("data parallel on 2"));
}

TEST(ExplainTest, NamesWhatBoundsAStage) {
  // 3 s of arithmetic against 0.6 s of links.
  EXPECT_EQ(explain(question(4), *question(4).given).stages[0].bound(), "arithmetic");
  const PlanQuestion slow = question(4, 1e8);  // six seconds of links
  const Explanation linked = explain(slow, *slow.given);
  EXPECT_EQ(linked.stages[0].bound(), "links");
  EXPECT_NEAR(linked.stages[0].computing, 3, 1e-9);
  EXPECT_NEAR(linked.stages[0].waiting, 6, 1e-9);
  EXPECT_NEAR(linked.stages[0].by_links, 3, 1e-9);
  PlanQuestion moving = question(1);
  for (LayerWork& layer : moving.inputs.network.layers) {
    for (OperatorWork& work : layer.forward) work.elements = {0, 10e12};
  }
  EXPECT_EQ(explain(moving, *moving.given).stages[0].bound(), "memory traffic");
}

// A pipeline whose second stage has nearly nothing to do.
TEST(ExplainTest, StagesWaitForEachOther) {
  PlanQuestion pair = question(1, 1e15);
  pair.inputs.network = made_up::network({1, 1e-6});
  pair.given = made_up::straight(2, 2);
  pair.given->micro_batches = 2;
  const Explanation explanation = explain(pair, *pair.given);
  EXPECT_EQ(explanation.stages[0].bound(), "arithmetic");
  EXPECT_EQ(explanation.stages[1].bound(), "other stages");
}

TEST(ExplainTest, ChangesArePlannedAgain) {
  const PlanQuestion two = question(2);
  const auto rate = [](int devices, double seconds) { return devices / seconds; };
  const double now = rate(2, seconds_with(2, 1e9));
  std::map<std::string, double> factors;
  for (const PlanChange& change : explain(two, *two.given).changes) {
    factors[change.name] = change.factor;
  }
  EXPECT_NEAR(factors.at("one more device"), rate(3, seconds_with(3, 1e9)) / now, 1e-9);
  EXPECT_NEAR(factors.at("twice the devices"), rate(4, seconds_with(4, 1e9)) / now, 1e-9);
  EXPECT_NEAR(factors.at("twice the bandwidth of all links"), rate(2, seconds_with(2, 2e9)) / now,
              1e-9);
  EXPECT_TRUE(factors.contains("fp16"));
  EXPECT_FALSE(factors.contains("bf16"));  // the device has none
}

// Layers divided over all devices are the fastest here, and tried when all else has been judged.
TEST(QuestionTest, VerdictsAreBesideTheBestOfAll) {
  PlanQuestion question;
  PlanInputs& inputs = question.inputs;
  const models::ModelOptions options = models::default_options("vgg16");
  inputs.network = work_of("vgg16", options);
  inputs.divide = [&](const SharedWork& shared) { return work_of("vgg16", options, shared); };
  inputs.cluster = find_cluster("titanv-8", "--cluster");
  inputs.constants = builtin_constants();
  inputs.software = inputs.constants.system("millrace", "--as");
  question.request.devices = 8;
  question.request.global_batch = 256;
  const SearchOutcome outcome = search(inputs, question.request);
  ASSERT_GT(outcome.plans.size(), 1u);
  EXPECT_EQ(outcome.plans[0].job.parallelism, parallel::Parallelism::hybrid);
  std::set<std::string> shapes;
  for (const auto* list : {&outcome.plans, &outcome.others}) {
    for (const SearchResult& result : *list) {
      if (&result == &outcome.plans[0] || !result.fits || !result.simulated) continue;
      const double slower =
          100 * (1 - result.samples_per_second / outcome.plans[0].samples_per_second);
      EXPECT_NEAR(std::stod(result.verdict), slower, 0.0501) << result.verdict;
      EXPECT_FALSE(result.reason.empty() && result.bubble > 0.05);
      EXPECT_TRUE(
          shapes.insert(fmt::format("{} {}", result.samples_per_second, describe_shape(result.job)))
              .second)
          << "twice: " << describe_shape(result.job);
    }
  }
}

TEST(HostMemoryTest, DevicesOfAHostShareItsMemory) {
  simulate::Cluster cluster = made_up::cluster(2, 2);
  cluster.devices_in_host_memory = true;
  const CostConstants constants = made_up::constants();
  const NetworkWork network = made_up::network({1, 1}, 1e6);
  const CostContext context{network, cluster, constants, constants.software[0]};
  PlannedJob job;
  job.stages = {{{0, 1, 2, 3}, 0, 2}};
  const MemoryNeeds needs = memory_needs(context, job);
  EXPECT_DOUBLE_EQ(needs.host, 2 * needs.most() + static_cast<double>(kProcessBytes));
  EXPECT_EQ(why_not(needs, cluster, 1e9), "");
  cluster.host_memory_bytes = needs.host - 1;
  EXPECT_THAT(why_not(needs, cluster, 1e9), HasSubstr("together, and a host has"));
  EXPECT_FALSE(predict(CostContext{network, cluster, constants, constants.software[0]}, job).fits);
  cluster.host_memory_bytes = needs.host;
  EXPECT_TRUE(predict(CostContext{network, cluster, constants, constants.software[0]}, job).fits);
  job.stages = {{{0, 1}, 0, 1}, {{0, 1}, 1, 2}};  // each device once, with both stages
  const MemoryNeeds shared = memory_needs(context, job);
  EXPECT_DOUBLE_EQ(shared.host, 2 * shared.devices[0] + static_cast<double>(kProcessBytes));
  cluster.devices_in_host_memory = false;
  EXPECT_DOUBLE_EQ(memory_needs(context, job).host, static_cast<double>(kProcessBytes));
}

TEST(HostMemoryTest, TheSearchObeysIt) {
  PlanQuestion any = question(1);
  any.given.reset();
  any.inputs.cluster.devices_in_host_memory = true;
  any.request.devices = 4;
  any.request.global_batch = 8;
  const PlanAnswer fits = answer(any);
  ASSERT_TRUE(fits.fits);
  any.inputs.cluster.host_memory_bytes = 1e9;  // half a copy of the weights and their gradients
  const PlanAnswer refused = answer(any);
  EXPECT_FALSE(refused.fits);
  EXPECT_THAT(refused.shape, HasSubstr("a host has"));
}

}  // namespace
}  // namespace millrace::planner
