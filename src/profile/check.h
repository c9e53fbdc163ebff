// A prediction next to what was then measured.
#pragma once

#include "base/json.h"
#include "train/job.h"
#include "train/trainer.h"

namespace millrace::profile {

// `prediction` is to_json of a HerePrediction, `result` what the job then did in this process.
// Adds "measured_step_seconds", "measured_samples_per_second", "error" (predicted over measured,
// less one), "arena_exact", "measured_rss_bytes" and "rss_error"; the last two only where
// `own_process` is true: the prediction was made in another one.
Json compare(const train::TrainJob& job, Json prediction, const train::TrainResult& result,
             bool own_process);

}  // namespace millrace::profile
