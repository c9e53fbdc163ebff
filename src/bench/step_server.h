// Runs training steps, or evaluations of a batch, one at a time on request, so that a benchmark can
// alternate between this process and another.
//
// Protocol, lines of JSON: first {"ready": true, ...}; then "step" runs one step and answers
// {"seconds", "loss"}; "memory" answers {"peak_rss_bytes", "arena_bytes"}; "limit" times the
// primitives alone once more and answers {"seconds", "convolution", "linear", "batch_norm"};
// "quit" or the end of the input ends. Of the processes of one job the first is asked, and the
// others take the same steps.
#pragma once

#include "bench/request_loop.h"
#include "train/job.h"

namespace millrace::bench {

// With `inference` a step evaluates a batch, and there are no "loss" and no "limit".
void serve_steps(const train::TrainJob& job, const RequestLines& lines, bool inference);

}  // namespace millrace::bench
