// The tables of a report.
#pragma once

#include <vector>

#include "report/markup.h"
#include "report/run_facts.h"
#include "report/timeline.h"

namespace millrace::report {

// Runs in the shape of published reports: model, data, stages, memory, epoch time, throughput, and
// the speed-up over the run that `base_of` names.
Table run_table(const std::vector<RunFacts>& runs);

// The run that another of `runs` is compared with: of the same model with a rate, on the fewest
// devices; among those a measured one, then one in fp32, then the first. Null: there is none.
const RunFacts* base_of(const RunFacts& run, const std::vector<RunFacts>& runs);

// Memory of each device of a summary or plan.
Table memory_table(const Json& root);
std::vector<std::string> memory_parts();

// Predicted against measured, where the run has both; otherwise without rows.
Table prediction_table(const Run& run, const RunFacts& facts);

// Where each device's time went, and what it waited for.
Table time_table(const TimeReport& report);
Table wait_table(const TimeReport& report);

Table evaluation_table(const std::vector<Evaluation>& evaluations);

// What a summary or plan says of the job beside figures; of the machine.
Table settings_table(const Json& root);
Table environment_table(const Json& environment);

}  // namespace millrace::report
