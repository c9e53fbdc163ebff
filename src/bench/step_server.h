// Runs training steps one at a time on request, so that a benchmark can alternate between this
// process and another.
//
// Protocol, lines of JSON: first {"ready": true, ...}; then "step" runs one step and answers
// {"seconds", "loss"}; "memory" answers {"peak_rss_bytes", "arena_bytes"}; "limit" times the
// primitives alone once more and answers {"seconds", "convolution", "linear", "batch_norm"};
// "quit" or the end of the input ends.
#pragma once

#include "bench/request_loop.h"
#include "train/job.h"

namespace millrace {

void serve_steps(const TrainJob& job, const RequestLines& lines);

}  // namespace millrace
