// A job's settings as checkpoints record them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "train/job.h"

namespace millrace::train {

// The settings that a checkpoint records. Those under "fixed" must be the same for a resumed
// run; a difference in the others is allowed and reported.
Json describe_job(const TrainJob& job);

// Throws InputError where a fixed setting of a checkpoint's record is not that of the job.
void require_same_job(const Json& recorded, const Json& now,
                      const std::filesystem::path& checkpoint);

// Something that a resumed run does otherwise than before.
struct SettingChange {
  std::string name;  // "‹lr›", "The plan's placement"
  Json was;
  Json is;
};

// What differs between two records, as describe_job and to_json make them; what the older one does
// not know is passed over. The length of the job counts where the learning rate depends on it.
std::vector<SettingChange> changed_settings(const Json& recorded, const Json& now);
std::vector<SettingChange> changed_rates(const Json& recorded, const Json& now);

// As stored in checkpoints and summaries.
Json to_json(const LearningRateSettings& settings);

}  // namespace millrace::train
