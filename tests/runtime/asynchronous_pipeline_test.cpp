// Pipelines that are never drained, against one device that keeps every past version of the
// weights and takes, for each micro-batch and stage, the one that the rule says.
#include <gtest/gtest.h>

#include "../parallel/networks.h"
#include "pipeline.h"

namespace millrace::testing {
namespace {

constexpr int64_t kSteps = 20;

// Which version of a stage's weights a micro-batch's forward and backward read.
using VersionRule = std::function<int64_t(int stage, int64_t micro_batch)>;

class PastWeights {
 public:
  PastWeights(const PipelineSpec& spec, const TestPipeline& pipeline, VersionRule rule)
      : schedule_(pipeline.schedule()),
        rule_(std::move(rule)),
        optimizer_(spec.optimizer),
        alone_(spec.network, spec.micro_batches, spec.optimizer),
        stages_(static_cast<size_t>(schedule_.stages)) {
    const Weights start = alone_.weights();
    for (int stage = 0; stage < schedule_.stages; ++stage) {
      const graph::Graph graph = pipeline.graphs().local(stage, 0).graph;
      Stage& one = stages_[static_cast<size_t>(stage)];
      one.versions.emplace_back();
      for (graph::TensorId id = 0; id < graph.tensor_count(); ++id) {
        const graph::Tensor& tensor = graph.tensor(id);
        if (tensor.role != graph::Role::parameter) continue;
        one.versions[0][tensor.name] = start.at(tensor.name);
        one.decays[tensor.name] = tensor.type.shape.size() > 1;
      }
    }
  }

  void run() {
    for (int64_t m = 0; m < schedule_.total_micro_batches(); ++m) {
      Weights mixed;
      for (int stage = 0; stage < schedule_.stages; ++stage) {
        const Stage& one = stages_[static_cast<size_t>(stage)];
        for (const auto& [name, values] : one.versions.at(static_cast<size_t>(rule_(stage, m)))) {
          mixed[name] = values;
        }
      }
      alone_.set_weights(mixed);
      const int64_t per_step = schedule_.micro_batches;
      alone_.accumulate(m / per_step, m % per_step, true);
      const Weights gradients = alone_.gradients();
      for (int stage = 0; stage < schedule_.stages; ++stage) add(stage, m, gradients);
    }
  }

  Weights weights() const {
    Weights all;
    for (const Stage& stage : stages_) {
      for (const auto& [name, values] : stage.versions.back()) all[name] = values;
    }
    return all;
  }

 private:
  struct Stage {
    std::vector<Weights> versions;
    std::map<std::string, bool> decays;
    std::map<std::string, std::vector<double>> sums;
    std::map<std::string, std::vector<double>> velocity;
    int64_t included = 0;
  };

  void add(int stage, int64_t m, const Weights& gradients) {
    Stage& one = stages_[static_cast<size_t>(stage)];
    ++one.included;
    for (const auto& [name, values] : one.versions.back()) {
      const std::vector<float>& gradient = gradients.at(name + ".grad_sum");
      std::vector<double>& sum = one.sums[name];
      sum.resize(values.size(), 0);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += gradient[i];
    }
    const bool last = m + 1 == schedule_.total_micro_batches() ||
                      schedule_.update_of(stage, m + 1) != schedule_.update_of(stage, m);
    if (last) update(one);
  }

  void update(Stage& stage) {
    const double mean =
        static_cast<double>(schedule_.micro_batches) / static_cast<double>(stage.included);
    Weights next = stage.versions.back();
    for (auto& [name, values] : next) {
      const double decay = stage.decays[name] ? optimizer_.weight_decay : 0;
      std::vector<double>& velocity = stage.velocity[name];
      velocity.resize(values.size(), 0);
      for (size_t i = 0; i < values.size(); ++i) {
        const double gradient = mean * stage.sums[name][i] + decay * values[i];
        velocity[i] = optimizer_.momentum * velocity[i] + gradient;
        values[i] -= static_cast<float>(kLearningRate * velocity[i]);
      }
    }
    stage.versions.push_back(std::move(next));
    stage.sums.clear();
    stage.included = 0;
  }

  const parallel::Schedule& schedule_;
  const VersionRule rule_;
  const passes::OptimizerSettings optimizer_;
  TestAlone alone_;
  std::vector<Stage> stages_;
};

// One forward in the stage for each stage behind it comes before the first backward.
VersionRule newest_at_forward(const PipelineSpec& spec) {
  const auto stages = static_cast<int>(spec.devices.size());
  return [stages, per_step = spec.micro_batches](int stage, int64_t m) {
    return std::max<int64_t>(0, m - (stages - 1 - stage)) / per_step;
  };
}

VersionRule step_before(const PipelineSpec& spec) {
  return [per_step = spec.micro_batches](int, int64_t m) {
    return std::max<int64_t>(0, m / per_step - 1);
  };
}

VersionRule table_of(const parallel::Schedule& schedule) {
  return [&schedule](int stage, int64_t m) {
    const parallel::Row& row = schedule.rows[static_cast<size_t>(schedule.row_of(stage, m))];
    for (const parallel::Task& task : row.tasks) {
      if (task.work == parallel::Work::forward && task.micro_batch == m) return task.version;
    }
    return int64_t{-1};
  };
}

void expect_as_past(const PipelineSpec& spec, const VersionRule& rule) {
  SCOPED_TRACE(parallel::name_of(spec.schedule));
  TestPipeline pipeline(spec);
  PastWeights past(spec, pipeline, rule ? rule : table_of(pipeline.schedule()));
  pipeline.train();
  past.run();
  std::string where;
  EXPECT_LT(distance(pipeline.weights(), past.weights(), &where), 1e-5) << where;
  // Were the weights of one device the same, the reference would prove nothing.
  TestAlone alone(spec.network, spec.micro_batches, spec.optimizer);
  for (int64_t step = 0; step < spec.steps; ++step) alone.train(step);
  EXPECT_GT(distance(alone.weights(), past.weights()), 1e-3);
}

TEST(AsynchronousPipeline, OneForwardOneBackwardStashesWeights) {
  PipelineSpec spec =
      spec_of(vgg_like(4), {{0}, {1}, {2}}, parallel::ScheduleKind::one_f_one_b, 1, kSteps);
  expect_as_past(spec, newest_at_forward(spec));
  spec = spec_of(alexnet_like(6), {{0, 1}, {2}, {3}, {4}}, parallel::ScheduleKind::one_f_one_b, 1,
                 kSteps);
  expect_as_past(spec, newest_at_forward(spec));
  spec = spec_of(vgg_like(4), {{0}, {1}, {2}}, parallel::ScheduleKind::one_f_one_b, 2, kSteps);
  expect_as_past(spec, newest_at_forward(spec));
}

TEST(AsynchronousPipeline, StaticBoundedStaleness) {
  PipelineSpec spec =
      spec_of(alexnet_like(7), {{0, 1, 2}, {3}}, parallel::ScheduleKind::ssp, 1, kSteps);
  expect_as_past(spec, newest_at_forward(spec));
  spec = spec_of(vgg_like(4), {{0, 1}, {1, 0}}, parallel::ScheduleKind::ssp, 1, kSteps);
  expect_as_past(spec, newest_at_forward(spec));
}

TEST(AsynchronousPipeline, TwoVersions) {
  PipelineSpec spec =
      spec_of(vgg_like(6), {{0}, {1}, {2}}, parallel::ScheduleKind::two_bw, 3, kSteps);
  expect_as_past(spec, step_before(spec));
  spec = spec_of(alexnet_like(12), {{0, 1}, {2}}, parallel::ScheduleKind::two_bw, 4, kSteps);
  expect_as_past(spec, step_before(spec));
}

TEST(AsynchronousPipeline, RoundRobinReplicasAverageWhatIsThere) {
  PipelineSpec spec =
      spec_of(vgg_like(3), {{0, 1, 2}, {3}}, parallel::ScheduleKind::one_f_one_b, 1, kSteps);
  spec.round_robin = true;
  expect_as_past(spec, {});
}

TEST(AsynchronousPipeline, OrderFoundOnTheWayKeepsTheBound) {
  for (const auto& devices :
       std::vector<std::vector<std::vector<int>>>{{{0}, {1}, {2}, {3}}, {{0, 1, 2}, {3}}}) {
    for (const bool round_robin : {false, true}) {
      PipelineSpec spec = spec_of(vgg_like(6), devices, parallel::ScheduleKind::ssp, 1, kSteps);
      spec.static_scheduling = false;
      spec.round_robin = round_robin;
      TestPipeline pipeline(spec);
      pipeline.train();
      pipeline.train();
      EXPECT_EQ(static_cast<int64_t>(pipeline.losses().size()), 2 * kSteps);
      const auto runners = pipeline.runners();
      for (const runtime::StageRunner* runner : runners) {
        const parallel::Row& row =
            pipeline.schedule().rows[static_cast<size_t>(runner->row(pipeline.schedule()))];
        EXPECT_LE(runner->largest_staleness(), row.versions);
      }
      EXPECT_GT(runners.front()->largest_staleness(), 0);
      EXPECT_LT(pipeline.losses().back(), 1.5 * pipeline.losses().front());
      pipeline.weights();
    }
  }
}

}  // namespace
}  // namespace millrace::testing
