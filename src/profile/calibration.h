// The planner's costs of a network as measured here, in place of what its formulas say.
#pragma once

#include "planner/cost/planned_job.h"
#include "profile/job_profile.h"

namespace millrace::profile {

// The layers take the seconds of two profiles on one device, straight lines through both. Layers
// that were not measured keep their work. `few` has fewer samples than `many`.
void calibrate(planner::NetworkWork& network, const JobProfile& few, const JobProfile& many);

// The same on devices on which the measured layers take so many times as long.
planner::NetworkWork slower(planner::NetworkWork network, double times);

// Moves each cut behind layers that take no time because they are joined into the one before.
void cut_behind_joined(const planner::NetworkWork& network, planner::PlannedJob& job);

}  // namespace millrace::profile
