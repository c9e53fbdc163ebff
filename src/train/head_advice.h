// Which way of laying a margin head over devices fits and is the fastest, in a sentence.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "graph/margin_head.h"

namespace millrace::train {

// What a job would take with its head in one of the three ways.
struct HeadChoice {
  graph::HeadParallel parallel = graph::HeadParallel::mp;
  double samples_per_second = 0;
  double bytes = 0;  // of the device that needs most
  bool fits = true;
};

// The job that the choices are of.
struct HeadQuestion {
  int64_t classes = 0;
  double sample_rate = 1;
  int devices = 1;
  double device_memory = 0;  // bytes; 0: no limit
};

// Names the fastest that fits and says why, and what the others would take.
std::string advise_head(const HeadQuestion& question, const std::vector<HeadChoice>& choices);

// {"dp": {"samples_per_second": .., "bytes": .., "fits": ..}, ..}
Json to_json(const std::vector<HeadChoice>& choices);

// What the head itself takes of a device: bytes of centres, state and kept products, and work per
// step. `rows` is the batch of all devices, `states` the number of optimizer states.
struct HeadNeeds {
  double bytes = 0;
  double operations = 0;
  double touched = 0;  // bytes of centres and state that it reads and writes
};
HeadNeeds head_needs(graph::MarginHeadOptions head, graph::HeadParallel parallel, int devices,
                     int64_t rows, int64_t dimension, int states);

}  // namespace millrace::train
