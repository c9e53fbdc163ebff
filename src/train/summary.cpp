#include "train/summary.h"

#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>

#include "backend/cpu/cores.h"
#include "base/median.h"
#include "base/text.h"
#include "base/version.h"
#include "compile/arithmetic.h"
#include "kernels/processor.h"
#include "train/plan.h"

namespace millrace::train {
namespace {

struct Spread {
  double median = 0;
  double least = 0;
  double most = 0;
};

Spread spread_of(std::vector<double> values) {
  if (values.empty()) return {};
  if (values.size() > 1) values.erase(values.begin());
  std::sort(values.begin(), values.end());
  return {median(values), values.front(), values.back()};
}

}  // namespace

int64_t peak_resident_bytes() {
  struct rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

Json to_json(const EvaluationReport& report) {
  Json json;
  json["step"] = report.step;
  json["samples"] = report.samples;
  if (report.skipped > 0) json["skipped_records"] = report.skipped;
  if (report.pairs > 0) json["pairs"] = report.pairs;
  for (const Measured& figure : report.figures) json[figure.metric] = figure.value;
  json["seconds"] = report.seconds;
  return json;
}

// Sums over the devices; seconds are those of the device that waited longest.
Json describe_communication(const std::vector<DeviceReport>& devices) {
  int64_t bytes = 0;
  double waited = 0;
  double background = 0;
  double exposed = 0;
  for (const DeviceReport& device : devices) {
    const comm::OperationStatistics total = device.communication.total();
    bytes += total.bytes;
    waited = std::max(waited, total.seconds_waited);
    background = std::max(background, device.background_seconds);
    exposed = std::max(exposed, device.exposed_seconds);
  }
  Json json = {{"bytes", bytes},
               {"seconds_waited", waited},
               {"background_seconds", background},
               {"exposed_seconds", exposed}};
  if (background > 0) json["hidden_share"] = std::max(0.0, 1 - exposed / background);
  return json;
}

Json describe_environment() {
  Json json;
  json["millrace"] = kVersion;
  json["processor"] = kernels::processor_name();
  json["cores"] = backend::available_cores();
  json["memory_bytes"] = int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGESIZE);
  struct utsname system = {};
  if (::uname(&system) == 0) {
    json["system"] = std::string(system.sysname) + " " + system.release + " " + system.machine;
  }
  json["compiler"] = std::string("g++ ") + __VERSION__;
  return json;
}

Json summary_of(const TrainJob& job, const TrainResult& result) {
  const Spread spread = spread_of(result.seconds);
  Json json;
  json["model"] = job.model;
  json["global_batch"] = job.options.batch;
  json["steps"] = result.losses.size();
  json["first_step"] = result.first_step;
  json["total_steps"] = result.total_steps;
  json["steps_per_epoch"] = result.steps_per_epoch;
  json["finished"] = !result.interrupted;
  json["precision"] = passes::precision_name(job.precision.type);
  json["arithmetic"] = compile::describe(job.precision);
  json["schedule"] = result.schedule;
  json["plan"] = parallel::to_json(plan_file_of(job));
  json["classes"] = job.options.classes;
  json["image"] = job.options.image;
  json["data"] = printable(job.data.source);
  json["seed"] = job.seed;
  json["threads_per_device"] = result.threads;
  json["samples_per_second"] =
      spread.median > 0 ? static_cast<double>(job.options.batch) / spread.median : 0.0;
  json["seconds_per_step"] = {
      {"median", spread.median}, {"min", spread.least}, {"max", spread.most}};
  json["wait_seconds"] = result.wait_seconds;
  json["skipped_records"] = result.skipped_records;
  json["loss"] = result.losses;
  if (job.loss_scale.in_use()) {
    json["loss_scale"] = {{"dynamic", job.loss_scale.dynamic},
                          {"scale", result.loss_scale.scale},
                          {"good_steps", result.loss_scale.good_steps},
                          {"skipped_steps", result.skipped_steps},
                          {"skipped_steps_in_all", result.loss_scale.skipped}};
  }
  if (result.evaluation) json["evaluation"] = to_json(*result.evaluation);
  if (result.best) json["best_evaluation"] = to_json(*result.best);
  json["process_peak_rss_bytes"] = peak_resident_bytes();
  json["devices"] = Json::array();
  for (const DeviceReport& device : result.devices) json["devices"].push_back(to_json(device));
  json["communication"] = describe_communication(result.devices);
  json["communication"]["dtype"] = passes::precision_name(job.precision.wire());
  json["reorders"] = result.reorders;
  json["recomputed"] = result.recomputed;
  json["in_place"] = result.in_place;
  json["environment"] = describe_environment();
  return json;
}

}  // namespace millrace::train
