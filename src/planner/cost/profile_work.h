// A network as a profile tells it: what its operators took and how large their tensors are, without
// the graph that they came from.
#pragma once

#include <vector>

#include "planner/cost/network_work.h"
#include "planner/pipedream.h"
#include "planner/profile.h"

namespace millrace::planner {

// The operators of a profile that are planned, each after those that feed it: those of PipeDream's
// stages one stage after the other, so that its division cuts the list; without stages in any such
// order. Inputs and operators that are not connected to the first one are left out.
std::vector<int> planned_order(const Profile& profile, const std::vector<PipelineStage>& stages);

// Layers in this order, named by the ids of their nodes. Times and activations are those of
// `samples` samples, and grow in proportion; updates do not. What crosses a cut is the activations
// that an operator behind it reads, each once.
NetworkWork work_of(const Profile& profile, const std::vector<int>& order, double samples);

// Gives the layers of a model the times of a profile of `samples` samples, whose nodes have the
// layers' names as id, or in their description as type(name). Throws InputError naming `file` and
// the first layer that it does not have.
void set_measured(NetworkWork& network, const Profile& profile, double samples,
                  std::string_view file);

}  // namespace millrace::planner
