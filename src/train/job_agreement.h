// Whether all ranks of a job were started for the same job.
#pragma once

#include <cstdint>

#include "base/json.h"
#include "comm/group.h"
#include "graph/graph.h"
#include "train/job.h"

namespace millrace::train {

// What must be the same on all ranks: build, model and its graph, seed, every setting that changes
// a result, length of the run and size of the data set. Paths may differ from host to host.
// A caller adds fields of its own, such as the step of the checkpoint that it found.
Json describe_agreement(const TrainJob& job, const graph::Graph& network, int64_t samples);

// Compares the descriptions of all members, before the first step. Where they differ, every member
// throws InputError with the same sentence: the first field that differs, in the order of member
// 0's fields, its values, and who has which. Called by all members.
void require_agreement(comm::Group& ranks, const Json& own);

}  // namespace millrace::train
