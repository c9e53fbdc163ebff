// The network of a job.
#pragma once

#include "graph/graph.h"
#include "train/job.h"

namespace millrace {

// Built by its name and sizes, with what the job does not train. Throws InputError.
Graph network_of(const TrainJob& job);

}  // namespace millrace
