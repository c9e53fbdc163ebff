// What weights tell of themselves, in place of flags.
#pragma once

#include <filesystem>
#include <string>

#include "cli/job_flags.h"
#include "train/model_card.h"

namespace millrace {

// The card of the newest checkpoint in a directory, or of a file of weights; one of the two is
// given. A file that tells nothing gives an empty card.
ModelCard find_card(const std::filesystem::path& checkpoint, const std::filesystem::path& weights);

// Model, classes, image size and channels where the user gave none. False if the user named
// another model, of which the card tells nothing.
bool follow_card(const ModelCard& card, JobFlags& flags);

// --best, for weights of a run.
void add_best_flag(CLI::App& command, JobFlags& flags);

// The job of looking at `data` (FORMAT:PATH, or synthetic; empty: what the run was measured on) with
// weights from one of the two, as flags and card say. Throws InputError.
TrainJob evaluation_job(JobFlags flags, const std::string& checkpoint, const std::string& weights,
                        const std::string& data);

}  // namespace millrace
