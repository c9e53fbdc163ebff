// The tables of a report.
#pragma once

#include <vector>

#include "report/markup.h"
#include "report/run_facts.h"
#include "report/timeline.h"

namespace millrace {

// Runs in the shape of published reports: model, data, stages, memory, epoch time, throughput, and
// the speed-up over the run of the same model on the fewest devices.
Table run_table(const std::vector<RunFacts>& runs);

// Memory of each device of a summary or plan.
Table memory_table(const Json& root);
std::vector<std::string> memory_parts();

// Predicted against measured, where the run has both; otherwise without rows.
Table prediction_table(const Run& run, const RunFacts& facts);

// Where each device's time went, and what it waited for.
Table time_table(const TimeReport& report);
Table wait_table(const TimeReport& report);

Table environment_table(const Json& environment);

}  // namespace millrace
