// A job's results and plans as JSON.
#pragma once

#include "base/json.h"
#include "train/job.h"
#include "train/trainer.h"

namespace millrace::train {

// The object that --summary writes. Step times and samples per second leave out the first step
// of the run where there are several; samples per second are the global batch over the median.
Json summary_of(const TrainJob& job, const TrainResult& result);

Json to_json(const EvaluationReport& report);

Json describe_communication(const std::vector<DeviceReport>& devices);

// Processor, cores, memory, versions.
Json describe_environment();

int64_t peak_resident_bytes();

}  // namespace millrace::train
