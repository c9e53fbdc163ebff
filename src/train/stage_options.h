// How each device of a job is compiled; the same for running it and for planning it.
#pragma once

#include "compile/compiler.h"
#include "parallel/job_graphs.h"
#include "parallel/schedule.h"
#include "train/job.h"

namespace millrace {

// A job's settings for one device alone; `choices` are borrowed.
CompileOptions compile_options(const TrainJob& job, int threads, ConvolutionChoices* choices);

// Steps in which every stage of a plan has as much under way as it ever has.
int64_t steps_to_fill(const Plan& plan);

// The table of a segment of so many steps; a plan that runs whole has none.
Schedule schedule_of(const Plan& plan, int64_t steps);

// Whether devices that update at the same moment have to know of each other's overflow, or of the
// norm of all gradients.
bool agrees_on_updates(const TrainJob& job);

// The same for a device of a stage: its part of the updates, the micro-batches it has under way
// and the versions of its parameters.
CompileOptions stage_options(const TrainJob& job, int stage, int member, int threads,
                             ConvolutionChoices* choices);

}  // namespace millrace
