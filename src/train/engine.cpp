#include "train/engine.h"

#include <algorithm>

#include "base/error.h"
#include "base/random.h"
#include "runtime/cores.h"

namespace millrace {

namespace {

DeviceOptions device_options(const TrainJob& job, TrainingObserver& observer) {
  DeviceCores cores = cores_of_devices(launch_place(), 1, job.threads, job.oversubscribe);
  if (!cores.note.empty()) observer.on_message(Severity::note, cores.note);
  const int threads = static_cast<int>(cores.teams[0].size());
  return {.threads = threads, .cores = std::move(cores.teams[0])};
}

}  // namespace

CompileOptions compile_options(const TrainJob& job, int threads, ConvolutionTuner* tuner) {
  CompileOptions options;
  options.kernels.convolution = job.convolution;
  options.kernels.tuner = tuner;
  options.kernels.threads = threads;
  options.optimizer = job.optimizer;
  options.recompute = job.recompute;
  options.memory_limit = job.device_memory;
  options.dump_directory = job.dump_passes;
  return options;
}

Engine::Engine(const TrainJob& job, const Graph& network, Purpose purpose,
               TrainingObserver& observer)
    : tuner_(ConvolutionTuner::default_path()), device_(device_options(job, observer)) {
  const CompileOptions options = compile_options(job, device_.threads(), &tuner_);
  tuner_.on_first_measurement([&] {
    observer.on_message(Severity::note,
                        fmt::format("Measuring convolution algorithms, once for each shape; the "
                                    "choices are kept in '{}'.",
                                    ConvolutionTuner::default_path().string()));
  });
  device_.run([&] {
    if (purpose == Purpose::evaluation) {
      evaluation_ = compile_evaluation(network, options);
      return;
    }
    training_ = compile_training(network, options);
    if (purpose == Purpose::training_and_evaluation) {
      evaluation_ = compile_evaluation(network, options, *training_);
    }
  });
  tuner_.on_first_measurement({});  // it borrows the observer
  tuner_.save();
  if (!tuner_.warning().empty()) observer.on_message(Severity::warning, tuner_.warning());
}

void Engine::start(uint64_t seed) {
  std::vector<const Program*> programs;
  if (training_) programs.push_back(&*training_);
  if (evaluation_) programs.push_back(&*evaluation_);
  session_.emplace(device_, programs);
  session_->initialize(seed);
}

const Program& Engine::largest() const {
  if (!training_) return *evaluation_;
  if (!evaluation_ || training_->arena_bytes >= evaluation_->arena_bytes) return *training_;
  return *evaluation_;
}

std::string kernel_fingerprint(const Program& program, int threads) {
  uint64_t hash = static_cast<uint64_t>(threads);
  for (const Instruction& instruction : program.instructions) {
    const std::string text = instruction.name + "=" + instruction.implementation;
    hash = hash_combine(hash, hash_bytes(text.data(), text.size()));
  }
  return fmt::format("{:016x}", hash);
}

}  // namespace millrace
