// What a job will cost, without running it.
#pragma once

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

// How fast this machine computes and moves memory with one device's team.
struct MachineSpeed {
  double operations_per_second = 0;  // of a convolution that runs well
  double bytes_per_second = 0;       // of a copy, read and written bytes together
};

// Takes a fraction of a second.
MachineSpeed measure_speed(backend::Device& device);

// Each instruction takes the longer of computing and moving its tensors.
double predict_seconds(const compile::Program& program, const MachineSpeed& speed);

// The arithmetic of what runs again, against that of all else.
double recomputed_share(const compile::Program& program);

// Compiles the job's training step and describes it: "devices" with the exact memory,
// "predicted_seconds_per_step", "predicted_samples_per_second", "fits" and "plan". A job beyond
// the memory limit is described all the same, with "fits" false and the reason. With
// `with_programs` each device's program as text is there too, as "program".
Json describe_plan(const TrainJob& job, TrainingObserver& observer, bool with_programs = false);

// The plan of a job that runs here, with all else that it says.
parallel::PlanFile plan_file_of(const TrainJob& job);

// The same for people, in some lines.
std::string plan_text(const Json& described);

// With the caller's choices of convolutions instead of those that a run would make.
Json describe_plan(const TrainJob& job, kernels::ConvolutionChoices& choices,
                   TrainingObserver& observer, bool with_programs = false);

}  // namespace millrace::train
