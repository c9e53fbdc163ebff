// How training goes faster with more devices, in float32 and in 16 bits.
//
// Every run is a process of its own. Runs of all configurations take turns, round by round, so that
// a slow minute of the machine touches all of them alike; medians over the rounds are compared.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/json.h"

namespace millrace::bench {

struct ScalingOptions {
  std::string model = "resnet50";
  std::vector<int> devices = {1, 2, 4, 8};
  std::vector<std::string> precisions = {"fp32", "fp16", "bf16"};
  int64_t batch = 16;  // samples per device
  int64_t image = 0;   // 0: the model's usual size
  int repeat = 7;
  int steps = 2;    // measured in each run
  int warm_up = 1;  // steps before them
  int threads = 0;  // of a device; 0: the same for all, so that the most devices still fit
  int cores = 1;    // of this machine
  std::filesystem::path program;  // the millrace program itself
};

// One configuration.
struct ScalingRow {
  int devices = 1;
  std::string precision;
  std::vector<double> runs;  // samples per second of each
  std::string refusal;       // why it could not be measured; then there are no runs
  bool shares_cores = false;
  double samples_per_second = 0;  // the median of the runs
  double speed_up = 0;            // over the fewest devices of the same precision
  double over_float32 = 0;        // over fp32 on as many devices; 0: not measured
};

// Threads of a device: as asked for, or as many as the most devices have cores for, at least one.
int threads_of(const ScalingOptions& options);

// `progress` receives a sentence after every run, with the time that is left. Throws InputError for
// options out of range.
std::vector<ScalingRow> run_scaling(const ScalingOptions& options,
                                    const std::function<void(const std::string&)>& progress);

// Fills in medians and ratios from the runs.
void compare(std::vector<ScalingRow>& rows);

std::string to_table(const std::vector<ScalingRow>& rows, const ScalingOptions& options);
Json to_json(const std::vector<ScalingRow>& rows, const ScalingOptions& options);

}  // namespace millrace::bench
