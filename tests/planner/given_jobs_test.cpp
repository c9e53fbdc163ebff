// Predictions of pipelines that share devices, and of cuts that messages decide.
#include <gtest/gtest.h>

#include "planner/search/cuts.h"
#include "planner/search/question.h"

namespace millrace::planner {
namespace {

PlanInputs inputs_of(const char* model, int machines, double bandwidth) {
  PlanInputs inputs;
  inputs.constants = builtin_constants();
  inputs.software = inputs.constants.system("millrace", "system");
  inputs.network = work_of(model, models::default_options(model));
  inputs.cluster.name = "drawn";
  inputs.cluster.machines = machines;
  inputs.cluster.devices_per_machine = 1;
  inputs.cluster.links = {{"X"}};
  inputs.cluster.device = {
      .name = "card", .memory_bytes = 1e12, .fp32_operations = 1e12, .memory_bandwidth = 1e11};
  inputs.cluster.network = {bandwidth, 0};
  return inputs;
}

PlannedJob pipeline(const std::vector<int>& devices, parallel::ScheduleKind schedule,
                    int micro_batches) {
  PlannedJob job;
  job.batch = 24;
  for (const int device : devices) job.stages.push_back({{device}, 0, 0});
  job.schedule = schedule;
  job.micro_batches = micro_batches;
  return job;
}

TEST(GivenJobsTest, NeighboursMayShareADevice) {
  using Kind = parallel::ScheduleKind;
  const PlanInputs inputs = inputs_of("resnet18", 3, 1e10);
  for (const Kind kind : {Kind::gpipe, Kind::one_f_one_b_flush, Kind::zero_bubble,
                          Kind::one_f_one_b, Kind::ssp, Kind::two_bw}) {
    for (const std::vector<int>& devices :
         {std::vector<int>{0, 0, 1, 2}, {0, 1, 1, 2}, {0, 0, 0, 1}, {0, 1, 2, 0}, {0, 0}}) {
      PlannedJob job = pipeline(devices, kind, 6);
      set_cuts(job, cut_by_cost(inputs.context(), job));
      const Prediction prediction = predict(inputs, job);
      EXPECT_GT(prediction.samples_per_second, 0) << parallel::name_of(kind);
      // A device cannot do more than its stages' work.
      double most = 0;
      for (int device = 0; device < 3; ++device) {
        double sum = 0;
        for (size_t stage = 0; stage < devices.size(); ++stage) {
          const StageCost& cost = prediction.costs[stage];
          if (devices[stage] == device) sum += cost.forward + cost.backward_seconds();
        }
        most = std::max(most, sum * job.micro_batches);
      }
      EXPECT_GE(prediction.seconds_per_step, most * 0.999) << parallel::name_of(kind);
    }
  }
}

// Over slow links the best cut is one of those with the least to send, whatever it does to balance.
TEST(GivenJobsTest, CutsWeighMessages) {
  const PlanInputs fast = inputs_of("mobilenet_v2", 2, 1e13),
                   slow = inputs_of("mobilenet_v2", 2, 1e3);
  PlannedJob job = pipeline({0, 1}, parallel::ScheduleKind::one_f_one_b_flush, 4);
  const auto crossing = [&](const PlanInputs& inputs) {
    const std::vector<int> ends = cut_by_cost(inputs.context(), job);
    return inputs.network.layers[static_cast<size_t>(ends[0] - 1)].cut.at(24);
  };
  double least = 1e300;
  for (size_t i = 0; i + 1 < slow.network.layers.size(); ++i) {
    least = std::min(least, slow.network.layers[i].cut.at(24));
  }
  EXPECT_EQ(crossing(slow), least);
  EXPECT_GT(crossing(fast), 2 * least);
}

}  // namespace
}  // namespace millrace::planner
