// PipeDream's optimizer: divides a profiled network into pipeline stages, and workers among the
// stages, on a machine with any number of levels (devices in a server, servers in a rack, ...).
#pragma once

#include <optional>
#include <vector>

#include "planner/profile.h"

namespace millrace::planner {

// One level: so many workers (those of the level below, together, are one worker of this one),
// joined with this many bytes per second each.
struct Level {
  int workers = 1;
  double bandwidth = 0;
};

struct PipedreamOptions {
  std::vector<Level> levels;  // innermost first
  // Activations shrink by this factor on the way between stages; without it they travel for free.
  std::optional<double> activation_ratio = {};
  std::optional<double> memory_bytes = {};  // of one worker
  bool straight = false;                    // no stage on more than one worker
  bool fewer = false;                       // workers may be left idle
};

// A stage of one level: its nodes (indices into the profile, each after those that feed it) on
// `replicas` workers of that level. `parts` are the stages inside one of these workers, which
// together have the same nodes; the innermost level has none.
struct PipelineStage {
  std::vector<int> nodes;
  int replicas = 1;
  std::vector<PipelineStage> parts;
};

struct PipedreamPlan {
  std::optional<double> pipeline_seconds;  // per mini-batch; none: nothing satisfies the options
  double data_parallel_seconds = 0;        // the same with every worker holding everything
  int states = 0;
  std::vector<PipelineStage> stages;  // of the outermost level
  std::vector<int> unreached;         // nodes left out: not connected to the first source
};

// Throws InputError for options out of range or a profile that is too large.
PipedreamPlan optimize_pipedream(const Profile& profile, const PipedreamOptions& options);

// Throws InputError naming what is out of range.
void check(const PipedreamOptions& options);

}  // namespace millrace::planner
