#include "profile/check.h"

#include <map>

#include "profile/measure.h"
#include "train/summary.h"

namespace millrace::profile {

Json compare(const train::TrainJob& job, Json prediction, const train::TrainResult& result,
             bool own_process) {
  const Json summary = train::summary_of(job, result);
  const double measured = summary["seconds_per_step"]["median"].get<double>();
  const double predicted = prediction["predicted_step_seconds"].get<double>();
  prediction["measured_step_seconds"] = measured;
  prediction["measured_min_seconds"] = summary["seconds_per_step"]["min"];
  prediction["measured_max_seconds"] = summary["seconds_per_step"]["max"];
  prediction["measured_samples_per_second"] = summary["samples_per_second"];
  prediction["error"] = measured > 0 ? predicted / measured - 1 : 0.0;
  std::map<std::pair<std::string, int>, int64_t> arenas;
  for (const train::DeviceReport& device : result.devices) {
    arenas[{device.id, device.stage}] = device.arena_bytes;
  }
  bool exact = true;
  for (Json& device : prediction["devices"]) {
    const auto found = arenas.find({device["id"].get<std::string>(), device["stage"].get<int>()});
    const int64_t bytes = found == arenas.end() ? 0 : found->second;
    device["measured_peak_bytes"] = bytes;
    exact = exact && bytes == device["peak_bytes"].get<int64_t>();
  }
  prediction["arena_exact"] = exact;
  if (own_process) {
    const auto rss = static_cast<double>(train::peak_resident_bytes());
    prediction["measured_rss_bytes"] = static_cast<int64_t>(rss);
    prediction["rss_error"] = prediction["process_rss_bytes"].get<double>() / rss - 1;
  }
  return prediction;
}

}  // namespace millrace::profile
