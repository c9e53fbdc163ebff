// What a job's devices used.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "base/json.h"
#include "comm/group.h"
#include "compile/memory_breakdown.h"

namespace millrace::train {

// A device of the job. Communication is what its groups did: those that kernels wait for and those
// that run beside them, and its messages to other stages.
struct DeviceReport {
  std::string id;  // "0:3"
  int stage = 0;
  int64_t arena_bytes = 0;
  int64_t resident_bytes = 0;
  compile::MemoryBreakdown breakdown = {};
  comm::GroupStatistics communication = {};
  double background_seconds = 0;  // at work on gradients beside the kernels
  double exposed_seconds = 0;     // that kernels stood still for them
};

class Engine;
struct Worker;

DeviceReport report_of(const Worker& worker);

// A sentence that names a device whose stages together need more than `limit` bytes; empty if there
// is none, or no limit (0).
std::string crowded_device(const std::vector<DeviceReport>& devices, int64_t limit);

// Of every device in every process, in the order of stages; called by all processes.
std::vector<DeviceReport> describe_devices(Engine& engine);

// What each process has to say of its own devices, likewise.
std::vector<DeviceReport> gather_reports(Engine& engine, const std::vector<DeviceReport>& own);

// The memory of the largest device of each stage, in their order.
std::vector<int64_t> bytes_of_stages(const std::vector<DeviceReport>& devices);

// What the devices of the host that holds the most take together.
int64_t bytes_of_fullest_host(const std::vector<DeviceReport>& devices);

Json to_json(const compile::MemoryBreakdown& breakdown);
Json to_json(const DeviceReport& report);
DeviceReport parse_device_report(const Json& json);

}  // namespace millrace::train
