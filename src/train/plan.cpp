#include "train/plan.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>

#include "backend/cpu/cores.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "base/parts.h"
#include "compile/arithmetic.h"
#include "compile/program_text.h"
#include "kernels/convolution_choices.h"
#include "parallel/job_graphs.h"
#include "passes/kept_layers.h"
#include "train/device_report.h"
#include "train/head_advice.h"
#include "train/network.h"
#include "train/pipeline.h"
#include "train/stage_options.h"
#include "train/summary.h"

namespace millrace {
namespace {

constexpr int kRepeats = 3;
constexpr double kUsualRate = 0.1;  // of pfc, for a head that is laid out otherwise

template <typename Work>
double best_seconds(Work&& work) {
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kRepeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    best = std::min(best, elapsed.count());
  }
  return best;
}

double measure_operations(int threads) {
  Graph graph;
  const auto add_tensor = [&](const char* name, Shape shape, Role role) {
    Tensor tensor;
    tensor.name = name;
    tensor.type = {std::move(shape), DataType::f32};
    tensor.role = role;
    return graph.add_tensor(std::move(tensor));
  };
  const TensorId image = add_tensor("x", {8, 256, 14, 14}, Role::input);
  const TensorId weight = add_tensor("w", {256, 256, 3, 3}, Role::parameter);
  using Integers = Attributes::Integers;
  const OperatorId id = graph.add_operator("convolution", "probe", {image, weight},
                                           {{"stride", Integers{1, 1}},
                                            {"padding", Integers{1, 1}},
                                            {"dilation", Integers{1, 1}},
                                            {"groups", int64_t{1}}});
  const Operator& op = graph.op(id);
  KernelOptions options;
  options.threads = threads;
  options.convolution = ConvolutionAlgorithm::direct;
  KernelRequest request{op, {}, {}, options};
  for (const TensorId input : op.inputs) request.inputs.push_back({graph.tensor(input).type, {}});
  for (const TensorId output : op.outputs) {
    request.outputs.push_back({graph.tensor(output).type, {}});
  }
  const LayoutWish wish = layouts_of(request);
  for (size_t i = 0; i < wish.inputs.size(); ++i) request.inputs[i].layout = wish.inputs[i];
  for (size_t i = 0; i < wish.outputs.size(); ++i) request.outputs[i].layout = wish.outputs[i];
  const std::unique_ptr<Kernel> kernel = make_kernel(request);

  const auto storage_of = [](const TensorSpec& spec) {
    return std::vector<float>(static_cast<size_t>(spec.physical_elements()), 0.5f);
  };
  std::vector<float> x = storage_of(request.inputs[0]);
  std::vector<float> w = storage_of(request.inputs[1]);
  std::vector<float> y = storage_of(request.outputs[0]);
  std::vector<std::byte> workspace(kernel->workspace_bytes() + 64);
  const auto address = reinterpret_cast<uintptr_t>(workspace.data());
  std::byte* inputs[] = {reinterpret_cast<std::byte*>(x.data()),
                         reinterpret_cast<std::byte*>(w.data())};
  std::byte* outputs[] = {reinterpret_cast<std::byte*>(y.data())};
  const StepState step;
  const KernelArguments arguments{inputs, outputs, workspace.data() + (64 - address % 64), &step};
  const double operations = 2.0 * 8 * 14 * 14 * 256 * 256 * 9;
  return operations / best_seconds([&] { kernel->run(arguments); });
}

double measure_bandwidth() {
  constexpr int64_t kBytes = int64_t{64} << 20;
  std::vector<std::byte> from(kBytes), to(kBytes);
  const double seconds = best_seconds([&] {
    parallel_ranges(kBytes, 1, [&](int, int64_t begin, int64_t end) {
      std::memcpy(to.data() + begin, from.data() + begin, static_cast<size_t>(end - begin));
    });
  });
  return 2.0 * kBytes / seconds;
}

}  // namespace

MachineSpeed measure_speed(Device& device) {
  MachineSpeed speed;
  device.run([&] {
    speed.operations_per_second = measure_operations(device.threads());
    speed.bytes_per_second = measure_bandwidth();
  });
  return speed;
}

double predict_seconds(const Program& program, const MachineSpeed& speed) {
  double seconds = 0;
  for (const Instruction& instruction : program.instructions) {
    seconds += std::max(instruction.arithmetic / speed.operations_per_second,
                        static_cast<double>(instruction.bytes_touched) / speed.bytes_per_second);
  }
  return seconds;
}

double recomputed_share(const Program& program) {
  double again = 0;
  double all = 0;
  for (const Instruction& instruction : program.instructions) {
    all += instruction.arithmetic;
    if (instruction.name.ends_with("/again")) again += instruction.arithmetic;
  }
  return all > again ? again / (all - again) : 0;
}

namespace {

// What a job's devices would run. Devices with equal parts of a stage are compiled once.
struct CompiledPlan {
  std::vector<DeviceReport> devices;
  std::vector<std::string> programs;  // of each of them, as text
  double seconds_per_step = 0;  // of the slowest stage, or of all together where they take turns
  int reorders = 0;
  int recomputed = 0;
  int recomputed_costly = 0;
  double recomputed_share = 0;  // of the device where it is the greatest
  int in_place = 0;
  size_t instructions = 0;
};

CompiledPlan compile_plan(const TrainJob& job, const JobGraphs& graphs,
                          const PipelineLayout* layout, Device& device, ConvolutionChoices& choices,
                          const MachineSpeed& speed) {
  CompiledPlan compiled;
  double slowest = 0;
  for (int stage = 0; stage < job.plan.stage_count(); ++stage) {
    const Placement& placement = job.plan.stages[static_cast<size_t>(stage)];
    // By the rows of a micro-batch and the classes of the head.
    std::map<std::pair<int64_t, int64_t>, DeviceReport> known;
    std::map<std::pair<int64_t, int64_t>, std::string> programs;
    double seconds = 0;
    for (int member = 0; member < placement.size(); ++member) {
      const int64_t rows =
          part_size(graphs.micro_batch(), job.plan.round_robin ? 0 : member, graphs.members(stage));
      const bool divided_weights = job.plan.sharding.parallelism != Parallelism::data;
      const int64_t classes =
          job.options.head ? part_size(job.options.classes, member, placement.size()) : 0;
      const bool own = divided_weights || job.plan.share_optimizer;
      const std::pair<int64_t, int64_t> key = {own ? member : rows, classes};
      if (!known.contains(key)) {
        Program program;
        CompileOptions options = stage_options(job, stage, member, device.threads(), &choices);
        if (layout != nullptr) options.shape.channel_bytes = layout->channel_bytes(stage, member);
        device.run([&] {
          program = compile_stage(graphs.local(stage, job.plan.round_robin ? 0 : member), options);
        });
        DeviceReport report;
        report.stage = stage;
        report.arena_bytes = program.arena_bytes;
        report.breakdown = program.breakdown;
        known[key] = report;
        programs[key] = to_text(program);
        seconds = std::max(seconds, predict_seconds(program, speed));
        compiled.reorders += program.reorders;
        compiled.recomputed += program.recomputed;
        compiled.recomputed_costly += program.recomputed_costly;
        compiled.recomputed_share = std::max(compiled.recomputed_share, recomputed_share(program));
        compiled.in_place += program.in_place;
        compiled.instructions += program.instructions.size();
      }
      DeviceReport report = known[key];
      report.id = to_string(placement.devices[static_cast<size_t>(member)]);
      compiled.devices.push_back(report);
      compiled.programs.push_back(programs[key]);
    }
    slowest = std::max(slowest, seconds);
  }
  const auto stages = static_cast<double>(job.plan.stages.size());
  const auto micro = static_cast<double>(job.plan.micro_batches);
  const bool drains = stages > 1 && is_synchronous(job.plan.schedule);
  compiled.seconds_per_step = slowest * (drains ? micro + stages - 1 : micro);
  return compiled;
}

// What the job would take with its head in each of the three ways: what was compiled, with the
// head's own needs exchanged.
std::vector<HeadChoice> head_choices(const TrainJob& job, const CompiledPlan& compiled,
                                     const MachineSpeed& speed) {
  constexpr int64_t kDimension = 512;  // of all face networks' embeddings
  MarginHeadOptions head = *job.options.head;
  if (head.parallel != HeadParallel::pfc) head.sample_rate = kUsualRate;
  const OptimizerSettings& optimizer = job.optimizer;
  const auto states = static_cast<int>(optimizer.row_of_centres().states.size());
  const auto devices = static_cast<int>(job.plan.devices().size());
  const auto needs_of = [&](HeadParallel parallel) {
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
  for (const HeadParallel parallel : {HeadParallel::dp, HeadParallel::mp, HeadParallel::pfc}) {
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

Json describe_plan(const TrainJob& job, TrainingObserver& observer, bool with_programs) {
  ConvolutionChoices choices(ConvolutionChoices::default_path());
  return describe_plan(job, choices, observer, with_programs);
}

Json describe_plan(const TrainJob& job, ConvolutionChoices& choices, TrainingObserver& observer,
                   bool with_programs) {
  const Graph network = network_of(job);
  KeptLayers(job.precision.keep).require_in(network);
  const JobGraphs graphs(network, job.plan);
  const auto devices = static_cast<int>(job.plan.devices().size());
  const int cores = available_cores();
  const int threads = job.threads > 0 ? std::min(job.threads, cores) : std::max(1, cores / devices);
  Device device({.threads = threads});
  std::optional<PipelineLayout> layout;
  if (!job.plan.runs_whole()) {
    layout.emplace(graphs, schedule_of(job.plan, steps_to_fill(job.plan)),
                   job.plan.device_numbers(), job.precision.wire());
  }
  observer.on_activity("measuring the speed of this machine");
  const MachineSpeed speed = measure_speed(device);
  observer.on_activity(fmt::format("compiling {}", job.model));
  std::string refusal;
  CompiledPlan compiled;
  try {
    compiled = compile_plan(job, graphs, layout ? &*layout : nullptr, device, choices, speed);
  } catch (const InputError& error) {
    if (job.device_memory == 0) throw;
    TrainJob unlimited = job;
    unlimited.device_memory = 0;
    compiled = compile_plan(unlimited, graphs, layout ? &*layout : nullptr, device, choices, speed);
    if (crowded_device(compiled.devices, job.device_memory).empty()) throw;
    refusal = error.what();
  }
  if (refusal.empty()) refusal = crowded_device(compiled.devices, job.device_memory);
  if (!choices.warning().empty()) observer.on_message(Severity::warning, choices.warning());
  Json json;
  json["model"] = job.model;
  json["global_batch"] = job.options.batch;
  json["precision"] = precision_name(job.precision.type);
  json["arithmetic"] = describe(job.precision);
  json["communication_dtype"] = precision_name(job.precision.wire());
  json["devices"] = Json::array();
  for (const DeviceReport& report : compiled.devices) {
    Json entry = to_json(report);
    entry.erase("resident_bytes");
    entry.erase("communication");
    if (with_programs) entry["program"] = compiled.programs[json["devices"].size()];
    json["devices"].push_back(entry);
  }
  json["predicted_seconds_per_step"] = compiled.seconds_per_step;
  json["predicted_samples_per_second"] =
      static_cast<double>(job.options.batch) / compiled.seconds_per_step;
  json["fits"] = refusal.empty();
  if (job.device_memory > 0) json["device_memory_bytes"] = job.device_memory;
  json["host_needs_bytes"] = bytes_of_fullest_host(compiled.devices);
  json["host_memory_bytes"] = host_memory();
  if (!refusal.empty()) json["reason"] = refusal;
  if (job.options.head && job.plan.stage_count() == 1) {
    const std::vector<HeadChoice> head_ways = head_choices(job, compiled, speed);
    json["head"] = to_json(head_ways);
    const MarginHeadOptions& head = *job.options.head;
    const double rate = head.parallel == HeadParallel::pfc ? head.sample_rate : kUsualRate;
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
  json["plan"] = to_json(job.plan);
  return json;
}

}  // namespace millrace
