// Searches for the plan of a job that is fastest on a cluster and fits into its devices.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/cost/cost_context.h"
#include "planner/cost/prediction.h"
#include "planner/search/pipedream_division.h"

namespace millrace::planner {

struct SearchRequest {
  double global_batch = 1;  // samples of one update
  int devices = 1;          // the first so many of the cluster
  graph::DataType precision = graph::DataType::f32;
  std::optional<graph::DataType> wire = {};  // see PlannedJob
  bool real_data = false;
  int optimizer_states = 1;
  double memory_limit = 0;  // bytes; 0: the device's
  PlannedHead head;         // any division is tried, `sampled` only if it is the one given
  bool head_fixed = false;  // only the division given is tried
  // Restrictions; none: all are tried.
  std::optional<parallel::ScheduleKind> schedule;
  std::optional<bool> recompute;
  std::optional<bool> share_optimizer;
  std::optional<parallel::Parallelism> parallelism = {};  // others than data: of one stage
  std::optional<int> micro_batches = {};
  bool allow_stale = false;  // also schedules that train on weights a few updates old
  bool straight = false;     // no stage on more than one device
  bool fewer = false;   // devices may be left idle: one, or half of them, or three quarters ...
  bool trained = true;  // `train` runs the plan: each device has whole samples of a step
  // PipeDream's divisions of the network, the first over all levels; none: found by the search.
  std::optional<std::vector<Division>> divisions = {};

  // Samples of a device's share of the global batch; a mini-batch, as PipeDream counts.
  double mini_batch() const { return global_batch / devices; }
};

// A candidate with its prediction. `verdict` says why it is not the best: how much slower and what
// the time goes to, or what does not fit.
struct SearchResult {
  PlannedJob job;
  double seconds_per_step = 0;
  double samples_per_second = 0;
  double bubble = 0;
  double memory = 0;  // of the fullest device
  bool fits = true;
  bool pipedream = false;  // divided as PipeDream would
  bool simulated = true;   // else a formula ruled it out, whose estimate this is
  std::string reason;      // what the time goes to, or what does not fit; may be empty
  std::string verdict;
};

struct SearchOutcome {
  std::vector<SearchResult> plans;   // those that fit, best first; empty: nothing fits
  std::vector<SearchResult> others;  // the best of every kind that lost, or does not fit; those
                                     // that a formula ruled out have its estimate
  // PipeDream's division with its own schedule: mini-batches of a device's share, replicas in turn,
  // never drained. None: there is no such division. Among the plans if the request allows it and it
  // fits, so that the best is never worse.
  std::optional<SearchResult> pipedream;
  size_t tried = 0;

  // Writes the verdicts, beside the best that there is now.
  void judge(bool allow_stale);
};

// Tries numbers of stages, uneven shares of devices, stages that devices take in turn, schedules,
// micro-batches, replicas that share batches or take turns, recomputation, shared optimizer state
// and divisions of the head; cuts each by cost, ranks by formula, simulates the most promising,
// every schedule of PipeDream's divisions, and PipeDream's own schedule. All plans compute what one
// device would unless the request allows others. Throws InputError if the request makes no sense
// (more devices than there are, an empty batch or one that they cannot divide, a stale schedule
// that is not allowed). `beside`: other plans, simulated, that are compared with them.
SearchOutcome search_plans(const CostContext& context, const SearchRequest& request,
                           std::vector<SearchResult> beside = {});

// What was predicted of a job; no verdict yet.
SearchResult result_of(const PlannedJob& job, const Prediction& prediction);

// "4 stages on 2 devices each, 1f1b-flush, 8 micro-batches, recompute".
std::string describe_shape(const PlannedJob& job);

}  // namespace millrace::planner
