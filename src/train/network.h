// The network of a job.
#pragma once

#include "graph/graph.h"
#include "train/job.h"

namespace millrace::train {

// Built by its name and sizes, with what the job does not train. Throws InputError.
graph::Graph network_of(const StepSettings& job);

}  // namespace millrace::train
