#include "train/plan.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <memory>

#include "backend/cpu/cores.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "base/parts.h"
#include "compile/arithmetic.h"
#include "compile/program_text.h"
#include "kernels/convolution_choices.h"
#include "kernels/convolution_problem.h"
#include "parallel/job_graphs.h"
#include "passes/kept_layers.h"
#include "train/device_report.h"
#include "train/head_advice.h"
#include "train/network.h"
#include "train/pipeline.h"
#include "train/stage_options.h"
#include "train/summary.h"

namespace millrace::train {
namespace {

constexpr int kRepeats = 3;
constexpr double kUsualRate = 0.1;  // of pfc, for a head that is laid out otherwise

}  // namespace

double measure_convolutions(bool halves) {
  kernels::ConvolutionProblem problem;
  problem.x = problem.y = {{8, 256, 14, 14}, graph::DataType::f32};
  problem.w = {{256, 256, 3, 3}, graph::DataType::f32};
  problem.stride = problem.padding = problem.dilation = {1, 1};
  problem.halves = halves;
  const double seconds =
      kernels::measure_convolution(problem, {kernels::ConvolutionMethod::direct}, 0).front();
  return 2.0 * 8 * 14 * 14 * 256 * 256 * 9 / seconds;
}

namespace {

double measure_bandwidth() {
  constexpr int64_t kBytes = int64_t{64} << 20;
  std::vector<std::byte> from(kBytes), to(kBytes);
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kRepeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    parallel_ranges(kBytes, 1, [&](int, int64_t begin, int64_t end) {
      std::memcpy(to.data() + begin, from.data() + begin, static_cast<size_t>(end - begin));
    });
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    best = std::min(best, elapsed.count());
  }
  return 2.0 * kBytes / best;
}

}  // namespace

MachineSpeed measure_speed(backend::Device& device) {
  MachineSpeed speed;
  device.run([&] {
    speed.operations_per_second = measure_convolutions(false);
    speed.bytes_per_second = measure_bandwidth();
  });
  return speed;
}

double formula_seconds(const compile::Instruction& instruction, const MachineSpeed& speed) {
  return std::max(instruction.arithmetic / speed.operations_per_second,
                  static_cast<double>(instruction.bytes_touched) / speed.bytes_per_second);
}

double recomputed_share(const compile::Program& program) {
  double again = 0;
  double all = 0;
  for (const compile::Instruction& instruction : program.instructions) {
    all += instruction.arithmetic;
    if (instruction.name.ends_with("/again")) again += instruction.arithmetic;
  }
  return all > again ? again / (all - again) : 0;
}

namespace {

// What a job's devices would run. Devices with equal parts of a stage are compiled once.
struct CompiledPlan {
  std::vector<DeviceReport> devices;
  std::vector<std::string> texts;                                 // of each of them: its program
  std::vector<std::shared_ptr<const compile::Program>> programs;  // each once
  std::vector<std::vector<const compile::Program*>> by_member;    // of each stage
  double seconds_per_step = 0;
  int reorders = 0;
  int recomputed = 0;
  int recomputed_costly = 0;
  double recomputed_share = 0;  // of the device where it is the greatest
  int in_place = 0;
  size_t instructions = 0;
};

// The order in which the device of a stage's member runs its tasks.
std::string order_of(const parallel::Plan& plan, const PipelineLayout& layout, int stage,
                     int member) {
  const parallel::Schedule schedule = schedule_of(plan, steps_to_fill(plan));
  const auto devices = plan.device_numbers();
  const int device = devices[static_cast<size_t>(stage)][static_cast<size_t>(member)];
  std::vector<int> rows;
  for (size_t i = 0; i < devices.size(); ++i) {
    for (size_t k = 0; k < devices[i].size(); ++k) {
      if (devices[i][k] != device) continue;
      rows.push_back(
          schedule.row_of(static_cast<int>(i), plan.round_robin ? static_cast<int64_t>(k) : 0));
    }
  }
  if (!schedule.fixed_order && rows.size() == 1) {
    return "order: the next backward that is ready, else the next forward; updates at once\n";
  }
  return compile::order_text(parallel::interleave(schedule, rows, layout.request().channels),
                             rows.size() > 1);
}

CompiledPlan compile_plan(const TrainJob& job, const parallel::JobGraphs& graphs,
                          const PipelineLayout* layout, backend::Device& device,
                          kernels::ConvolutionChoices& choices, bool with_programs) {
  CompiledPlan compiled;
  for (int stage = 0; stage < job.plan.stage_count(); ++stage) {
    const parallel::Placement& placement = job.plan.stages[static_cast<size_t>(stage)];
    struct Known {
      DeviceReport report;
      std::string text;
      const compile::Program* program = nullptr;
    };
    std::map<std::pair<int64_t, int64_t>, Known> all;  // by rows of a micro-batch, and classes
    compiled.by_member.emplace_back();
    for (int member = 0; member < placement.size(); ++member) {
      const int64_t rows =
          part_size(graphs.micro_batch(), job.plan.round_robin ? 0 : member, graphs.members(stage));
      const bool divided_weights = job.plan.sharding.parallelism != parallel::Parallelism::data;
      const int64_t classes =
          job.options.head ? part_size(job.options.classes, member, placement.size()) : 0;
      // What members send to other stages differs.
      const bool own = divided_weights || job.plan.share_optimizer || with_programs;
      const std::pair<int64_t, int64_t> key = {own ? member : rows, classes};
      const auto [found, is_new] = all.try_emplace(key);
      Known& known = found->second;
      if (is_new) {
        const auto compiled_program = std::make_shared<compile::Program>();
        compile::Program& program = *compiled_program;
        compile::CompileOptions options =
            stage_options(job, stage, member, device.threads(), &choices);
        if (layout != nullptr) options.shape.channels = layout->ends(stage, member);
        device.run([&] {
          program = compile::compile_stage(graphs.local(stage, job.plan.round_robin ? 0 : member),
                                           options);
        });
        known.report.stage = stage;
        known.report.arena_bytes = program.arena_bytes;
        known.report.breakdown = program.breakdown;
        if (with_programs) known.text = compile::to_text(program);
        if (with_programs && layout) known.text += order_of(job.plan, *layout, stage, member);
        known.program = &program;
        compiled.programs.push_back(compiled_program);
        compiled.reorders += program.reorders;
        compiled.recomputed += program.recomputed;
        compiled.recomputed_costly += program.recomputed_costly;
        compiled.recomputed_share = std::max(compiled.recomputed_share, recomputed_share(program));
        compiled.in_place += program.in_place;
        compiled.instructions += program.instructions.size();
      }
      DeviceReport report = known.report;
      report.id = parallel::to_string(placement.devices[static_cast<size_t>(member)]);
      compiled.devices.push_back(report);
      compiled.texts.push_back(known.text);
      compiled.by_member.back().push_back(known.program);
    }
  }
  return compiled;
}

// What the job would take with its head in each of the three ways: what was compiled, with the
// head's own needs exchanged.
std::vector<HeadChoice> head_choices(const StepSettings& job, const CompiledPlan& compiled,
                                     const MachineSpeed& speed) {
  constexpr int64_t kDimension = 512;  // of all face networks' embeddings
  graph::MarginHeadOptions head = *job.options.head;
  if (head.parallel != graph::HeadParallel::pfc) head.sample_rate = kUsualRate;
  const passes::OptimizerSettings& optimizer = job.optimizer;
  const auto states = static_cast<int>(optimizer.row_of_centres().states.size());
  const auto devices = static_cast<int>(job.plan.devices().size());
  const auto needs_of = [&](graph::HeadParallel parallel) {
    return head_needs(head, parallel, devices, job.options.batch, kDimension, states);
  };
  const auto seconds_of = [&](const HeadNeeds& needs) {
    return std::max(needs.operations / speed.operations_per_second,
                    needs.touched / speed.bytes_per_second);
  };
  int64_t peak = 0;
  for (const DeviceReport& report : compiled.devices) peak = std::max(peak, report.arena_bytes);
  const HeadNeeds own = needs_of(head.parallel);
  std::vector<HeadChoice> choices;
  for (const graph::HeadParallel parallel :
       {graph::HeadParallel::dp, graph::HeadParallel::mp, graph::HeadParallel::pfc}) {
    const HeadNeeds other = needs_of(parallel);
    const double seconds = compiled.seconds_per_step + seconds_of(other) - seconds_of(own);
    HeadChoice choice = {parallel, static_cast<double>(job.options.batch) / seconds,
                         static_cast<double>(peak) + other.bytes - own.bytes, true};
    choice.fits = job.device_memory == 0 || choice.bytes <= static_cast<double>(job.device_memory);
    choices.push_back(choice);
  }
  return choices;
}

}  // namespace

parallel::PlanFile plan_file_of(const StepSettings& job) {
  parallel::PlanFile file = {job.plan, job.precision.type, job.precision.communication,
                             job.recompute};
  if (job.options.head) {
    file.head = {job.options.head->parallel, job.options.head->sample_rate};
  }
  const auto devices = static_cast<int64_t>(job.plan.devices().size());
  const bool whole = job.options.batch % devices == 0;
  file.made_for = {job.model, whole ? job.options.batch / devices : 0, "here"};
  return file;
}

Json describe_plan(const TrainJob& job, TrainingObserver& observer, const PlanDetails& details) {
  std::optional<kernels::ConvolutionChoices> own;
  if (details.choices == nullptr) own.emplace(kernels::ConvolutionChoices::default_path());
  kernels::ConvolutionChoices& choices = own ? *own : *details.choices;
  const graph::Graph network = network_of(job);
  passes::KeptLayers(job.precision.keep).require_in(network);
  const parallel::JobGraphs graphs(network, job.plan);
  const auto devices = static_cast<int>(job.plan.devices().size());
  const int cores = backend::available_cores();
  const int threads = job.threads > 0 ? std::min(job.threads, cores) : std::max(1, cores / devices);
  backend::Device device({.threads = threads});
  std::optional<PipelineLayout> layout;
  if (!job.plan.runs_whole()) {
    layout.emplace(graphs, schedule_of(job.plan, steps_to_fill(job.plan)),
                   job.plan.device_numbers(), job.precision.wire());
  }
  MachineSpeed speed;
  if (details.step_seconds) {
    observer.on_activity("measuring the speed of this machine");
    speed = measure_speed(device);
  }
  observer.on_activity(fmt::format("compiling {}", job.model));
  std::string refusal;
  CompiledPlan compiled;
  try {
    compiled =
        compile_plan(job, graphs, layout ? &*layout : nullptr, device, choices, details.programs);
  } catch (const InputError& error) {
    if (job.device_memory == 0) throw;
    TrainJob unlimited = job;
    unlimited.device_memory = 0;
    compiled = compile_plan(unlimited, graphs, layout ? &*layout : nullptr, device, choices,
                            details.programs);
    if (crowded_device(compiled.devices, job.device_memory).empty()) throw;
    refusal = error.marked();
  }
  if (refusal.empty()) refusal = crowded_device(compiled.devices, job.device_memory);
  if (!choices.warning().empty()) observer.on_message(Severity::warning, choices.warning());
  Json json;
  json["model"] = job.model;
  json["global_batch"] = job.options.batch;
  json["precision"] = passes::precision_name(job.precision.type);
  json["arithmetic"] = compile::describe(job.precision);
  json["communication_dtype"] = passes::precision_name(job.precision.wire());
  json["devices"] = Json::array();
  for (const DeviceReport& report : compiled.devices) {
    Json entry = to_json(report);
    entry.erase("resident_bytes");
    entry.erase("communication");
    if (details.programs) entry["program"] = compiled.texts[json["devices"].size()];
    json["devices"].push_back(entry);
  }
  if (details.step_seconds) {
    compiled.seconds_per_step = details.step_seconds(
        {job, layout ? &*layout : nullptr, compiled.by_member, speed, threads});
    json["source"] = "formula";
    json["predicted_seconds_per_step"] = compiled.seconds_per_step;
    json["predicted_samples_per_second"] =
        static_cast<double>(job.options.batch) / compiled.seconds_per_step;
  }
  json["fits"] = refusal.empty();
  if (job.device_memory > 0) json["device_memory_bytes"] = job.device_memory;
  const int64_t host_needs = bytes_of_fullest_host(compiled.devices) + kProcessBytes;
  json["host_needs_bytes"] = host_needs;
  json["host_memory_bytes"] = host_memory();
  json["fits_host"] = host_needs <= host_memory();
  if (!refusal.empty()) json["reason"] = refusal;
  if (details.step_seconds && job.options.head && job.plan.stage_count() == 1) {
    const std::vector<HeadChoice> head_ways = head_choices(job, compiled, speed);
    json["head"] = to_json(head_ways);
    const graph::MarginHeadOptions& head = *job.options.head;
    const double rate = head.parallel == graph::HeadParallel::pfc ? head.sample_rate : kUsualRate;
    json["advice"] = advise_head(
        {job.options.classes, rate, devices, static_cast<double>(job.device_memory)}, head_ways);
  }
  json["schedule"] = job.plan.schedule_name();
  json["threads_per_device"] = threads;
  json["instructions"] = compiled.instructions;
  json["reorders"] = compiled.reorders;
  json["recomputed"] = compiled.recomputed;
  json["recomputed_costly"] = compiled.recomputed_costly;
  json["recomputed_share"] = compiled.recomputed_share;
  json["in_place"] = compiled.in_place;
  json["plan"] = parallel::to_json(plan_file_of(job));
  return json;
}

}  // namespace millrace::train
