// What a job will cost, without running it.
#pragma once

#include <functional>
#include <vector>

#include "backend/device.h"
#include "base/json.h"
#include "compile/program.h"
#include "parallel/plan_file.h"
#include "train/job.h"
#include "train/observer.h"

namespace millrace::kernels {
class ConvolutionChoices;
}  // namespace millrace::kernels

namespace millrace::train {

class PipelineLayout;

// How fast this machine computes and moves memory with one device's team.
struct MachineSpeed {
  double operations_per_second = 0;  // of a convolution that runs well
  double bytes_per_second = 0;       // of a copy, read and written bytes together
};

// Operations per second of a convolution that runs well, by the team of the calling thread, in
// float32 or in bfloat16; 0: it cannot be done.
double measure_convolutions(bool halves);

// Takes a fraction of a second.
MachineSpeed measure_speed(backend::Device& device);

// Each instruction takes the longer of computing and moving its tensors.
double formula_seconds(const compile::Instruction& instruction, const MachineSpeed& speed);

// What a simulator takes to tell the seconds of a job's step. Borrows everything.
struct PlannedPrograms {
  const TrainJob& job;
  const PipelineLayout* layout = nullptr;                      // none: programs run whole
  std::vector<std::vector<const compile::Program*>> programs;  // of each member of each stage
  MachineSpeed speed;                                          // of a device, alone
  int threads = 1;                                             // of a device
};

struct PlanDetails {
  bool programs = false;  // each device's program as text, as "program"
  // Seconds of a step; none: only memory is told, and nothing is measured.
  std::function<double(const PlannedPrograms&)> step_seconds = {};
  kernels::ConvolutionChoices* choices = nullptr;  // none: those that a run would make
};

// The arithmetic of what runs again, against that of all else.
double recomputed_share(const compile::Program& program);

// Compiles the job's training step and describes it: "devices" with the exact memory, "fits" and
// "plan" and, if `details` has a simulator, "predicted_seconds_per_step" and
// "predicted_samples_per_second". A job beyond the memory limit is described all the same, with
// "fits" false and the reason.
Json describe_plan(const TrainJob& job, TrainingObserver& observer,
                   const PlanDetails& details = {});

// The plan of a job that runs here, with all else that it says.
parallel::PlanFile plan_file_of(const StepSettings& job);

// The same for people, in some lines.
std::string plan_text(const Json& described);

}  // namespace millrace::train
