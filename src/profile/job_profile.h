// What each operator and layer of a job takes on the devices here; saved as JSON, exchanged as
// PipeDream's text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "planner/profile.h"
#include "profile/exchange.h"
#include "profile/measure.h"

namespace millrace::profile {

// One instruction of a device's program. Seconds are medians.
struct OperatorCost {
  std::string name, type, implementation;
  std::string phase;         // "forward", "backward" or "update"
  double seconds = 0;        // with all devices of the job at work
  double alone_seconds = 0;  // with this one alone
  double spread = 0;         // relative
  double arithmetic = 0;     // floating-point operations
  double bytes = 0;          // inputs and outputs
};

// See MeasuredProgram.
struct ProgramProfile {
  int stage = 0;
  int member = 0;
  std::vector<OperatorCost> operators;
  std::vector<double> round_seconds = {};
  std::map<std::string, double> copies = {};
  double carry_seconds = 0;
};

// An operator of the network and what belongs to it: its gradient, its parameters' updates, the
// reorders it needs. Seconds are of one micro-batch on the device that was measured; operators that
// were joined into others take none. `inputs` are places in the list.
struct LayerCost {
  std::string name, type;
  double forward_seconds = 0, backward_seconds = 0, update_seconds = 0;
  double activation_bytes = 0, parameter_bytes = 0;
  std::vector<int> inputs = {};

  double seconds() const { return forward_seconds + backward_seconds + update_seconds; }
};

// Plain data.
struct JobProfile {
  std::string model;
  int64_t batch = 0;        // of a step
  int64_t micro_batch = 0;  // samples that a stage sees at a time
  int64_t samples = 0;      // of these on each device of the first stage; `layers` are of so many
  int64_t image = 0;
  int threads = 0;  // of a device
  int devices = 0;  // at work at once
  int rounds = 0;
  double step_spread = 0;  // of a whole round, relative
  ExchangeSpeed exchange;  // between devices here
  std::vector<ProgramProfile> programs;
  std::vector<LayerCost> layers;
  double other_seconds = 0;  // that belong to no layer
};

// Compiles and measures; the job runs in this process alone.
JobProfile profile_job(const train::TrainJob& job, const MeasureOptions& options,
                       train::TrainingObserver& observer);

// The same from what was measured with an engine that runs the job. `exchange` is not measured.
JobProfile describe_measured(const train::StepSettings& job, train::Engine& engine,
                             const std::vector<MeasuredProgram>& programs, int rounds);

// What the profile says about the programs of an engine that runs the job. Throws InputError naming
// `file` and what does not match: it is a profile of another job.
std::vector<MeasuredProgram> programs_of(const JobProfile& profile, const train::StepSettings& job,
                                         train::Engine& engine, std::string_view file);

Json to_json(const JobProfile& profile);

// Takes any bytes; throws InputError naming `file` and the field at fault.
JobProfile parse_job_profile(std::string_view text, std::string_view file);

// Updates stand apart until they are written: the text has no place for them but backward.
planner::Profile to_pipedream(const JobProfile& profile);

// A profile to plan with, as text or as JSON. Plain data.
struct PlanningProfile {
  planner::Profile profile;  // of JSON: ids are the names of layers
  double samples = 0;        // of its mini-batch; 0: the file does not say
};

// Throws InputError naming the file and what is wrong with it.
PlanningProfile read_planning_profile(const std::string& file);

// The dearest layers as a table for people.
std::string layer_table(const JobProfile& profile, size_t most);

}  // namespace millrace::profile
