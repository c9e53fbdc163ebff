// A job's settings as checkpoints record them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "train/job.h"

namespace millrace {

// The settings that a checkpoint records. Those under "fixed" must be the same for a resumed
// run; a difference in the others is allowed and reported.
Json describe_job(const TrainJob& job);

// Compares a checkpoint's record with the job: throws InputError where a fixed setting differs,
// returns the names of the others that do.
std::vector<std::string> compare_jobs(const Json& recorded, const Json& now,
                                      const std::filesystem::path& checkpoint);

// As stored in checkpoints and summaries.
Json to_json(const LearningRateSettings& settings);

}  // namespace millrace
