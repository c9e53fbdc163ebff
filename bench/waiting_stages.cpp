#include "waiting_stages.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <thread>

#include "base/error.h"
#include "comm/job_groups.h"
#include "compile/copies.h"
#include "parallel/simulation.h"
#include "runtime/stage_runner.h"

namespace millrace {
namespace {

constexpr int64_t kBytes = 64;  // of each tensor, a row of sixteen
constexpr int64_t kElements = 16;

std::string tensor_of(int stage) { return fmt::format("x{}", stage); }

// Waits, notes that it ran, and hands its first input on, one larger.
class WaitingKernel final : public kernels::Kernel {
 public:
  WaitingKernel(const WaitingJob& job, parallel::Work work, int stage, double first, double units,
                std::vector<parallel::Task>& order)
      : work_(work),
        stage_(stage),
        first_(first),
        seconds_(units * job.unit_seconds),
        fails_at_(stage + 1 == job.stages && work != parallel::Work::forward ? job.fails_at : -1),
        order_(order) {}

  void run(const kernels::KernelArguments& a) override {
    const int64_t micro_batch = a.step->first_sample;
    const double expected = first_ + static_cast<double>(micro_batch);
    if (!a.inputs.empty() && static_cast<double>(a.input<float>(0)[0]) != expected) {
      throw std::logic_error(fmt::format("{} of micro-batch {} in stage {} has other data",
                                         parallel::name_of(work_), micro_batch, stage_));
    }
    if (micro_batch == fails_at_) fail_job("The device has caught fire.");
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds_));
    order_.push_back({work_, micro_batch, 0});
    if (!a.outputs.empty()) a.output<float>(0)[0] = static_cast<float>(expected + 1);
  }

 private:
  parallel::Work work_;
  int stage_;
  double first_;
  double seconds_;
  int64_t fails_at_;
  std::vector<parallel::Task>& order_;
};

// The program of a stage, made by hand: what arrives and leaves lies in the micro-batch's slot.
class WaitingProgram {
 public:
  WaitingProgram(const WaitingJob& job, int stage, const parallel::Row& row,
                 const std::vector<parallel::RouteEnd>& channels,
                 std::vector<parallel::Task>& order)
      : job_(job), stage_(stage), order_(order) {
    const bool last = stage + 1 == job.stages;
    const bool apart = job.schedule == parallel::ScheduleKind::zero_bubble;
    program_.memory.slots = static_cast<int>(row.in_flight);
    program_.memory.versions = static_cast<int>(row.versions);
    std::vector<compile::Address> none;
    const std::vector<compile::Address> in = stage == 0 ? none : input(tensor_of(stage - 1));
    const std::vector<compile::Address> out = last ? none : result(tensor_of(stage));
    const parallel::StageEdge behind = {tensor_of(stage), {}, stage, stage + 1, true};
    const std::vector<compile::Address> gradient_in =
        last ? none : input(parallel::arriving_gradient(behind));
    const std::vector<compile::Address> gradient_out =
        stage == 0 ? none : result(tensor_of(stage - 1) + ".grad");
    add(graph::Phase::forward, parallel::Work::forward, stage, 1, in, out);
    add(graph::Phase::backward, apart ? parallel::Work::backward_input : parallel::Work::backward,
        2 * job.stages - 1 - stage, apart ? 1 : 2, gradient_in, gradient_out);
    if (apart) add(graph::Phase::backward, parallel::Work::backward_weights, 0, 1, none, none);
    program_.tasks.push_back(
        {parallel::Work::update, program_.instructions.size(), program_.instructions.size()});
    program_.memory.channels = parallel::channel_bytes(channels);
    program_.arena_bytes = program_.memory.total();
    compile::add_copies(program_, channels);
  }

  compile::Program take() { return std::move(program_); }

 private:
  compile::Slot slot(const std::string& name) {
    compile::Slot made;
    made.name = name;
    made.type = {{1, kElements}};
    made.address = {compile::ArenaRegion::saved, program_.memory.saved};
    made.bytes = kBytes;
    program_.memory.saved += kBytes;
    return made;
  }

  std::vector<compile::Address> input(const std::string& name) {
    program_.inputs.push_back(slot(name));
    return {program_.inputs.back().address};
  }

  std::vector<compile::Address> result(const std::string& name) {
    program_.results.push_back(slot(name));
    return {program_.results.back().address};
  }

  void add(graph::Phase phase, parallel::Work work, double first, double units,
           std::vector<compile::Address> in, std::vector<compile::Address> out) {
    compile::Instruction instruction;
    instruction.name = parallel::name_of(work);
    instruction.phase = phase;
    instruction.kernel = std::make_shared<WaitingKernel>(job_, work, stage_, first, units, order_);
    instruction.inputs = std::move(in);
    instruction.outputs = std::move(out);
    program_.instructions.push_back(std::move(instruction));
    const size_t count = program_.instructions.size();
    program_.tasks.push_back({work, count - 1, count});
  }

  const WaitingJob& job_;
  const int stage_;
  std::vector<parallel::Task>& order_;
  compile::Program program_;
};

double bubble_of(const runtime::TraceLog& log) {
  int64_t begin = INT64_MAX;
  int64_t end = 0;
  int64_t busy = 0;
  for (const runtime::TraceEvent& event : log.events) {
    const bool work = event.category == runtime::TraceCategory::forward ||
                      event.category == runtime::TraceCategory::backward;
    if (!work) continue;
    begin = std::min(begin, event.begin);
    end = std::max(end, event.end);
    busy += event.end - event.begin;
  }
  const double all = static_cast<double>(end - begin) * static_cast<double>(log.devices.size());
  return 1 - static_cast<double>(busy) / all;
}

}  // namespace

WaitingRun run_waiting(const WaitingJob& job) {
  const parallel::Schedule schedule = parallel::make_schedule({.kind = job.schedule,
                                                               .stages = job.stages,
                                                               .micro_batches = job.micro_batches,
                                                               .steps = job.steps});
  parallel::RouteRequest request;
  request.channels = parallel::channels_between(schedule);
  const std::string fault = parallel::check(schedule, request.channels);
  if (!fault.empty()) throw std::logic_error(fault);
  std::vector<runtime::TraceDevice> traced;
  for (int stage = 0; stage < job.stages; ++stage) {
    request.devices.push_back({stage});
    traced.push_back({0, stage, stage});
    if (stage + 1 == job.stages) continue;
    request.edges.push_back({tensor_of(stage), {{1, kElements}}, stage, stage + 1, true});
  }
  const std::vector<parallel::Route> routes = parallel::routes_between(request);
  runtime::TraceRecorder trace(traced, 20 * schedule.total_micro_batches() + 20);
  comm::JobGroups groups({job.stages});
  const std::vector<comm::Group> messages = groups.make_for_messages(groups.all());

  struct Stage {
    std::unique_ptr<backend::Device> device;
    compile::Program program;
    std::unique_ptr<runtime::Session> session;
    std::unique_ptr<runtime::StageRunner> runner;
  };
  WaitingRun run;
  run.order.resize(static_cast<size_t>(job.stages));
  std::vector<Stage> stages(static_cast<size_t>(job.stages));
  for (int i = 0; i < job.stages; ++i) {
    const auto index = static_cast<size_t>(i);
    Stage& stage = stages[index];
    const std::vector<parallel::RouteEnd> ends = parallel::ends_of(routes, i, 0);
    stage.device = std::make_unique<backend::Device>(backend::DeviceOptions{.threads = 1});
    stage.program = WaitingProgram(job, i, schedule.rows[index], ends, run.order[index]).take();
    stage.session = std::make_unique<runtime::Session>(
        *stage.device, std::vector<const compile::Program*>{&stage.program});
    const runtime::StageRunnerOptions options{.stage = i,
                                              .messages = messages[index],
                                              .trace = &trace,
                                              .trace_device = i,
                                              .micro_batch_rows = 1};
    stage.runner = std::make_unique<runtime::StageRunner>(options, *stage.session, stage.program);
    stage.runner->prepare({.schedule = &schedule});
  }
  for (Stage& stage : stages) {
    stage.device->start([&groups, &schedule, &request, runner = stage.runner.get()] {
      try {
        const int row = runner->row(schedule);
        runtime::run_stages({runner}, schedule,
                            parallel::interleave(schedule, {row}, request.channels));
      } catch (const std::exception& error) {
        groups.stop(error.what());
        throw;
      }
    });
  }
  std::exception_ptr error;
  for (Stage& stage : stages) {
    try {
      stage.device->finish();
    } catch (...) {
      if (!error) error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
  run.trace = trace.log();
  run.bubble = bubble_of(run.trace);
  return run;
}

}  // namespace millrace
