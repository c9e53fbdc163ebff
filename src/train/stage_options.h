// How each device of a job is compiled; the same for running it and for planning it.
#pragma once

#include "compile/compiler.h"
#include "parallel/job_graphs.h"
#include "parallel/schedule.h"
#include "train/job.h"

namespace millrace::train {

// A job's settings for one device alone; `choices` are borrowed.
compile::CompileOptions compile_options(const StepSettings& job, int threads,
                                        kernels::ConvolutionChoices* choices);

// Steps in which every stage of a plan has as much under way as it ever has.
int64_t steps_to_fill(const parallel::Plan& plan);

// The table of a segment of so many steps; a plan that runs whole has none.
parallel::Schedule schedule_of(const parallel::Plan& plan, int64_t steps);

// Whether devices that update at the same moment have to know of each other's overflow, or of the
// norm of all gradients.
bool agrees_on_updates(const StepSettings& job);

// The same for a device of a stage: its part of the updates, the micro-batches it has under way
// and the versions of its parameters.
compile::CompileOptions stage_options(const StepSettings& job, int stage, int member, int threads,
                                      kernels::ConvolutionChoices* choices);

}  // namespace millrace::train
