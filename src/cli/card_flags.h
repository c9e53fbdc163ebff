// What weights tell of themselves, in place of flags.
#pragma once

#include <filesystem>
#include <string>

#include "cli/job_flags.h"
#include "train/model_card.h"

namespace millrace::cli {

// Model, classes, image size and channels where the user gave none. False if the user named
// another model, of which the card tells nothing.
bool follow_card(const train::ModelCard& card, JobFlags& flags);

// --best, for weights of a run.
void add_best_flag(CLI::App& command, JobFlags& flags);

// The job of looking at `data` (FORMAT:PATH, or synthetic; empty: what the run was measured on)
// with weights from one of the two, as flags and card say. Throws InputError.
train::TrainJob evaluation_job(JobFlags flags, const std::string& checkpoint,
                               const std::string& weights, const std::string& data);

// Throws InputError where a file of weights would get the name of another format, or cannot be
// written. `what` says which output it is.
void require_safetensors(const std::filesystem::path& path, std::string_view what);

}  // namespace millrace::cli
