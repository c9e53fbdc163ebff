#include "train/plan.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "base/parallel.h"
#include "train/engine.h"
#include "train/summary.h"

namespace millrace {
namespace {

constexpr int kRepeats = 3;

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

Json describe_plan(const TrainJob& job, TrainingObserver& observer) {
  std::string refusal;
  std::unique_ptr<Engine> engine;
  try {
    engine = std::make_unique<Engine>(job, Purpose::training, observer);
  } catch (const InputError& error) {
    if (job.device_memory == 0) throw;
    TrainJob unlimited = job;
    unlimited.device_memory = 0;
    engine = std::make_unique<Engine>(unlimited, Purpose::training, observer);
    if (engine->training()->arena_bytes <= job.device_memory) throw;
    refusal = error.what();
  }
  const Program& program = *engine->training();
  const double seconds = predict_seconds(program, measure_speed(engine->device()));
  Json json;
  json["model"] = job.model;
  json["global_batch"] = job.options.batch;
  json["precision"] = "fp32";
  json["devices"] = Json::array({describe_device(program.arena_bytes, program.breakdown)});
  json["predicted_seconds_per_step"] = seconds;
  json["predicted_samples_per_second"] = static_cast<double>(job.options.batch) / seconds;
  json["fits"] = refusal.empty();
  if (job.device_memory > 0) json["device_memory_bytes"] = job.device_memory;
  if (!refusal.empty()) json["reason"] = refusal;
  Json& plan = json["plan"];
  plan["devices"] = 1;
  plan["threads_per_device"] = engine->device().threads();
  plan["placement"] = "0:0";
  plan["schedule"] = "single";
  plan["instructions"] = program.instructions.size();
  plan["reorders"] = program.reorders;
  plan["recomputed"] = program.recomputed;
  plan["in_place"] = program.in_place;
  return json;
}

}  // namespace millrace
