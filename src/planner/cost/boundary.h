// How long activations take from the devices of one stage to those of the next.
#pragma once

#include "planner/cost/planned_job.h"
#include "simulate/fabric.h"

namespace millrace::planner {

// Seconds until `bytes`, spread evenly over the devices of `from`, lie spread evenly over those of
// `to`, when nothing else is under way: the slowest of a sender's port, a receiver's port, and the
// network card of a machine, of which each direction is shared by the machine's devices.
// `efficiency` is the share of a link's rate that software reaches. Stages on different devices.
double boundary_seconds(const PlannedStage& from, const PlannedStage& to, double bytes,
                        const simulate::Cluster& cluster, const simulate::Fabric& fabric,
                        double efficiency);

}  // namespace millrace::planner
