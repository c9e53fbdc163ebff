// A classifier head by itself, run a step at a time on request.
//
// Protocol as in bench/step_server.h, with the requests "step" ({"seconds", "loss"}), "memory"
// ({"peak_rss_bytes", "arena_bytes"}) and "limit" ({"seconds"} of the products alone).
#pragma once

#include <cstdint>

#include "bench/request_loop.h"
#include "graph/margin_head.h"

namespace millrace::bench {

struct HeadJob {
  graph::MarginHeadOptions head;
  int64_t batch = 128;
  int64_t dimension = 512;
  int threads = 2;
  uint64_t seed = 1;
};

// Random embeddings and labels, SGD with momentum. Throws JobError if the machine has not the
// memory that the head needs.
void serve_head_steps(const HeadJob& job, const RequestLines& lines);

}  // namespace millrace::bench
