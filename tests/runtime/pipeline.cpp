#include "pipeline.h"

#include <gtest/gtest.h>

#include <cmath>
#include <mutex>
#include <thread>

#include "base/parallel.h"
#include "base/random.h"

namespace millrace::testing {
namespace {

parallel::Plan plan_of(const PipelineSpec& spec) {
  parallel::Plan plan;
  plan.stages.clear();
  for (const std::vector<int>& stage : spec.devices) {
    parallel::Placement placement;
    for (int device : stage) placement.devices.push_back({0, device});
    plan.stages.push_back(placement);
  }
  if (spec.devices.size() > 1) plan.stage_weights.assign(spec.devices.size(), 1);
  plan.sharding.synchronise_batch_norm = !spec.round_robin;
  plan.round_robin = spec.round_robin;
  plan.schedule = spec.schedule;
  plan.static_scheduling = spec.static_scheduling;
  plan.micro_batches = spec.micro_batches;
  return plan;
}

parallel::Schedule schedule_of(const PipelineSpec& spec) {
  parallel::ScheduleRequest request;
  request.kind = spec.schedule;
  request.stages = static_cast<int>(spec.devices.size());
  request.micro_batches = spec.micro_batches;
  request.steps = spec.steps;
  for (const auto& stage : spec.devices) request.replicas.push_back(static_cast<int>(stage.size()));
  request.round_robin = spec.round_robin;
  request.static_scheduling = spec.static_scheduling;
  return parallel::make_schedule(request);
}

int device_count(const PipelineSpec& spec) {
  int most = 0;
  for (const auto& stage : spec.devices) {
    for (int device : stage) most = std::max(most, device + 1);
  }
  return most;
}

}  // namespace

TestPipeline::TestPipeline(const PipelineSpec& spec)
    : plan_(plan_of(spec)),
      graphs_(spec.network, plan_),
      schedule_(schedule_of(spec)),
      channels_(parallel::channels_between(schedule_, 2, parallel::skips_among(graphs_.edges()))),
      request_{spec.devices, graphs_.edges(), spec.round_robin, channels_, spec.wire},
      routes_(parallel::routes_between(request_)),
      groups_({device_count(spec)}) {
  EXPECT_EQ(parallel::check(schedule_, channels_), "");
  for (int i = 0; i < device_count(spec); ++i) {
    devices_.push_back(std::make_unique<backend::Device>(
        backend::DeviceOptions{.threads = 1, .backend = spec.backend}));
  }
  compile(spec);
  connect(spec);
}

void TestPipeline::compile(const PipelineSpec& spec) {
  for (int stage = 0; stage < schedule_.stages; ++stage) {
    std::map<std::string, graph::Layout> layouts;
    const auto& devices = spec.devices[static_cast<size_t>(stage)];
    for (int member = 0; member < static_cast<int>(devices.size()); ++member) {
      const parallel::Row& row =
          schedule_
              .rows[static_cast<size_t>(schedule_.row_of(stage, spec.round_robin ? member : 0))];
      compile::CompileOptions options = compile_options(spec.optimizer);
      options.layouts = layouts;
      options.updates.members = static_cast<int>(devices.size());
      options.updates.member = member;
      options.updates.wire = spec.wire;
      options.precision = spec.precision;
      options.recompute = spec.recompute;
      const bool at_once = schedule_.updates_at_once(row);
      options.updates.accumulate = !at_once;
      options.shape.phasing =
          at_once ? compile::Phasing::mini_batches : compile::Phasing::micro_batches;
      options.shape.slots = static_cast<int>(row.in_flight);
      options.shape.versions = static_cast<int>(row.versions);
      options.shape.split_backward = spec.schedule == parallel::ScheduleKind::zero_bubble;
      options.shape.channels = parallel::ends_of(routes_, stage, member);
      const parallel::StageGraph graph = graphs_.local(stage, member);
      auto part = std::make_unique<Part>();
      part->stage = stage;
      part->member = member;
      part->device = devices[static_cast<size_t>(member)];
      part->training = compile::compile_stage(graph, options);
      if (spec.spoil) spec.spoil(part->device, part->training);
      if (spec.evaluation) {
        part->evaluation = std::make_unique<compile::Program>(
            compile::compile_evaluation(graph.graph, options, part->training));
      }
      if (member == 0) layouts = compile::layouts_of_parameters(part->training);
      parts_.push_back(std::move(part));
    }
  }
}

void TestPipeline::connect(const PipelineSpec& spec) {
  std::vector<comm::Group> messages = groups_.make_for_messages(groups_.all());
  for (int stage = 0; stage < schedule_.stages; ++stage) {
    std::vector<comm::Member> members;
    for (int device : spec.devices[static_cast<size_t>(stage)]) members.push_back({0, device});
    std::vector<comm::Group> direct = groups_.make(members);
    std::vector<comm::Group> background = groups_.make(members);
    for (auto& part : parts_) {
      if (part->stage != stage) continue;
      const auto member = static_cast<size_t>(part->member);
      std::vector<const compile::Program*> programs = {&part->training};
      if (part->evaluation) programs.push_back(part->evaluation.get());
      backend::Device& device = *devices_[static_cast<size_t>(part->device)];
      part->session = std::make_unique<runtime::Session>(device, programs);
      part->session->initialize(kSeed);
      runtime::StageRunnerOptions options{.stage = stage,
                                          .member = part->member,
                                          .messages = messages[static_cast<size_t>(part->device)],
                                          .loopbacks = &loopbacks_,
                                          .micro_batch_rows = graphs_.micro_batch(),
                                          .results = {"loss"}};
      if (members.size() > 1) {
        part->collectives = std::make_unique<runtime::DeviceCollectives>(device, direct[member],
                                                                         background[member]);
        part->session->set_collectives(part->collectives.get());
        if (!spec.round_robin) options.agreement = direct[member];
      }
      if (spec.round_robin) options.turn = {std::ssize(members), part->member};
      part->runner = std::make_unique<runtime::StageRunner>(options, *part->session, part->training,
                                                            part->evaluation.get());
    }
  }
}

void TestPipeline::feed(Part& part, int64_t first_step, int64_t micro_batches_per_step) {
  runtime::StageRunner& runner = *part.runner;
  if (runner.fed_inputs().empty()) return;
  for (int64_t i = 0; i < runner.micro_batches(); ++i) {
    const int64_t step = first_step + runner.micro_batch(i) / micro_batches_per_step;
    std::vector<runtime::FedInput> inputs;
    std::vector<int32_t> labels;
    std::vector<float> images;
    for (const compile::Slot* slot : runner.fed_inputs()) {
      const RowRange rows =
          rows_of(*slot, runner.micro_batch(i) % micro_batches_per_step, graphs_.micro_batch());
      const bool are_labels = slot->type.dtype == graph::DataType::s32;
      if (are_labels) labels = labels_of(step, rows.begin, rows.end);
      if (!are_labels) images = images_of(row_of(*slot), step, rows.begin, rows.end);
      inputs.push_back(
          {slot, are_labels ? static_cast<const void*>(labels.data()) : images.data()});
    }
    runner.feed(i, inputs);
  }
}

void TestPipeline::run(const std::function<void(const std::vector<runtime::StageRunner*>&)>& work,
                       int64_t first_step, int64_t per_step) {
  std::vector<std::vector<runtime::StageRunner*>> runners(devices_.size());
  for (auto& part : parts_)
    runners[static_cast<size_t>(part->device)].push_back(part->runner.get());
  std::mutex mutex;
  std::string failure;
  const auto guarded = [&](auto&& body) {
    try {
      body();
    } catch (const std::exception& error) {
      const std::lock_guard lock(mutex);
      if (failure.empty()) failure = error.what();
      groups_.stop(error.what());
    }
  };
  for (size_t i = 0; i < devices_.size(); ++i) {
    if (runners[i].empty()) continue;
    devices_[i]->start([&, i] { guarded([&] { work(runners[i]); }); });
  }
  std::vector<std::thread> feeders;
  for (auto& part : parts_) {
    feeders.emplace_back([&] {
      guarded([&] {
        set_team_size(1);
        feed(*part, first_step, per_step);
      });
    });
  }
  for (std::thread& feeder : feeders) feeder.join();
  for (size_t i = 0; i < devices_.size(); ++i) {
    if (!runners[i].empty()) devices_[i]->finish();
  }
  if (!failure.empty()) throw std::runtime_error(failure);
}

void TestPipeline::note_steps(runtime::StepQueue& steps) {
  steps.close();
  std::map<int64_t, runtime::StepSums> sums;
  const int members = graphs_.members(schedule_.stages - 1);
  while (const auto entry = steps.pop()) {
    runtime::StepSums& sum = sums[entry->step];
    sum.micro_batches += entry->micro_batches;
    sum.results.resize(1, 0);
    sum.results[0] += entry->results.at(0);
  }
  for (const auto& [step, sum] : sums) {
    EXPECT_EQ(step, static_cast<int64_t>(losses_.size()));
    EXPECT_EQ(sum.micro_batches, plan_.micro_batches * members);
    losses_.push_back(sum.results[0] / members);
  }
}

void TestPipeline::train() {
  runtime::StepQueue steps;
  const runtime::Segment segment = {.schedule = &schedule_,
                                    .seed = kSeed,
                                    .first_step = next_step_,
                                    .learning_rate = [](int64_t) { return kLearningRate; },
                                    .steps = &steps};
  for (auto& part : parts_) part->runner->prepare(segment);
  run(
      [&](const std::vector<runtime::StageRunner*>& runners) {
        std::vector<int> rows;
        for (const runtime::StageRunner* runner : runners) rows.push_back(runner->row(schedule_));
        runtime::run_stages(runners, schedule_, parallel::interleave(schedule_, rows, channels_));
      },
      next_step_, plan_.micro_batches);
  next_step_ += schedule_.steps;
  note_steps(steps);
}

std::vector<float> TestPipeline::evaluate(int64_t micro_batches) {
  for (auto& part : parts_) part->runner->prepare_evaluation(micro_batches);
  std::mutex mutex;
  const int64_t classes = parts_.back()->evaluation->result("logits").type.shape[1];
  std::vector<float> logits(static_cast<size_t>(micro_batches * graphs_.micro_batch() * classes));
  run(
      [&](const std::vector<runtime::StageRunner*>& runners) {
        runtime::evaluate_stages(runners, [&](runtime::StageRunner& runner, int64_t micro_batch) {
          if (runner.stage() != schedule_.stages - 1) return;
          for (auto& part : parts_) {
            if (part->runner.get() != &runner) continue;
            const compile::Slot& slot = part->evaluation->result("logits");
            const RowRange rows = rows_of(slot, micro_batch, graphs_.micro_batch());
            const std::lock_guard lock(mutex);
            backend::Stream& stream = part->session->stream();
            part->session->copy_out(*part->evaluation, slot, 0,
                                    logits.data() + rows.begin * classes, stream);
            stream.finish();
          }
        });
      },
      0, micro_batches);
  return logits;
}

Weights TestPipeline::weights(int64_t micro_batch) const {
  Weights weights;
  for (const auto& part : parts_) {
    const auto members =
        static_cast<int64_t>(plan_.stages[static_cast<size_t>(part->stage)].size());
    const int64_t shown = plan_.round_robin ? micro_batch % members : 0;
    for (const compile::Slot& slot : part->session->state()) {
      if (slot.role != graph::Role::parameter && slot.role != graph::Role::buffer) continue;
      std::vector<float> values(static_cast<size_t>(slot.type.elements()));
      part->session->read_state(slot, values);
      if (slot.role == graph::Role::buffer && part->member != shown) continue;
      const auto [known, added] = weights.insert({slot.name, values});
      if (!added && slot.role == graph::Role::parameter) {
        EXPECT_EQ(known->second, values) << slot.name << " on member " << part->member;
      }
    }
  }
  return weights;
}

std::vector<const runtime::StageRunner*> TestPipeline::runners() const {
  std::vector<const runtime::StageRunner*> list;
  for (const auto& part : parts_) list.push_back(part->runner.get());
  return list;
}

std::vector<const compile::Program*> TestPipeline::programs() const {
  std::vector<const compile::Program*> list;
  for (const auto& part : parts_) list.push_back(&part->training);
  return list;
}

}  // namespace millrace::testing
