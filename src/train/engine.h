// A job's model: built, compiled and bound to a device.
#pragma once

#include <memory>
#include <optional>

#include "compile/compiler.h"
#include "kernels/convolution_tuner.h"
#include "runtime/finite_check.h"
#include "runtime/session.h"
#include "train/job.h"
#include "train/observer.h"

namespace millrace {

enum class Purpose : uint8_t { training, training_and_evaluation, evaluation };

// Owns device, programs and session, in the order of their lives. Immovable, because the
// session points into it; used by the thread that made it.
class Engine {
 public:
  // Compiles on the device's thread. Throws InputError if the model does not fit the memory
  // limit; nothing has been allocated then.
  Engine(const TrainJob& job, const Graph& network, Purpose purpose, TrainingObserver& observer);

  // With the network that the job names.
  Engine(const TrainJob& job, Purpose purpose, TrainingObserver& observer)
      : Engine(job, build_model(job.model, job.options), purpose, observer) {}

  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Allocates the arena; before that there is no session.
  void start(uint64_t seed);

  Session& session() { return *session_; }
  Device& device() { return device_; }
  const Device& device() const { return device_; }

  // Null where the purpose did not ask for it.
  const Program* training() const { return training_ ? &*training_ : nullptr; }
  const Program* evaluation() const { return evaluation_ ? &*evaluation_ : nullptr; }

  // Checks what the training program computes; see runtime/finite_check.h.
  void watch(Watch what) { millrace::watch(*training_, what); }

  // See explain_step.
  std::string explain(const StepState& step, Watch what) {
    return explain_step(*session_, *training_, step, what);
  }

  // The program that needs the larger arena.
  const Program& largest() const;

 private:
  ConvolutionTuner tuner_;
  Device device_;
  std::optional<Program> training_;
  std::optional<Program> evaluation_;
  std::optional<Session> session_;
};

// A word that changes when any operator is run by another implementation: two programs of the
// same job with the same word give the same bits.
std::string kernel_fingerprint(const Program& program, int threads);

// How a job's graph is compiled; `tuner` is borrowed.
CompileOptions compile_options(const TrainJob& job, int threads, ConvolutionTuner* tuner);

}  // namespace millrace
