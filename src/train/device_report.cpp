#include "train/device_report.h"

#include <algorithm>
#include <map>

#include "base/text.h"
#include "comm/texts.h"
#include "train/engine.h"

namespace millrace::train {
namespace {

void add(comm::GroupStatistics& sum, const comm::GroupStatistics& other) {
  for (size_t i = 0; i < sum.operations.size(); ++i) {
    sum.operations[i].calls += other.operations[i].calls;
    sum.operations[i].bytes += other.operations[i].bytes;
    sum.operations[i].seconds_waited += other.operations[i].seconds_waited;
  }
}

// Lanes wait for messages beside the kernels, most of the time for one that nobody needs yet.
comm::GroupStatistics messages_of(const comm::Group& group) {
  comm::GroupStatistics statistics = group.statistics();
  for (comm::OperationStatistics& one : statistics.operations) one.seconds_waited = 0;
  return statistics;
}

}  // namespace

DeviceReport report_of(const Worker& worker) {
  DeviceReport report;
  report.id = parallel::to_string(worker.id);
  report.stage = worker.stage;
  report.arena_bytes = worker.largest().arena_bytes;
  if (worker.session) {
    report.arena_bytes = worker.session->arena_bytes();
    report.resident_bytes = worker.session->resident_bytes();
  }
  report.breakdown = worker.largest().breakdown;
  if (worker.messages) add(report.communication, messages_of(*worker.messages));
  if (worker.collectives == nullptr) return report;
  add(report.communication, worker.collectives->direct_statistics());
  add(report.communication, worker.collectives->background_statistics());
  report.background_seconds = worker.collectives->background_seconds();
  report.exposed_seconds = worker.collectives->exposed_seconds();
  return report;
}

std::string crowded_device(const std::vector<DeviceReport>& devices, int64_t limit) {
  if (limit <= 0) return {};
  std::map<std::string, int64_t> bytes;
  for (const DeviceReport& device : devices) {
    int64_t& sum = bytes[device.id];
    sum += device.arena_bytes;
    if (sum <= limit) continue;
    return fmt::format(
        "The stages on device {} need {} together but ‹device_memory› allows {}; use a smaller "
        "batch, more devices or ‹schedule› 1f1b-flush.",
        device.id, format_bytes(static_cast<uint64_t>(sum)),
        format_bytes(static_cast<uint64_t>(limit)));
  }
  return {};
}

std::vector<int64_t> bytes_of_stages(const std::vector<DeviceReport>& devices) {
  std::vector<int64_t> bytes;
  for (const DeviceReport& device : devices) {
    bytes.resize(std::max(bytes.size(), static_cast<size_t>(device.stage) + 1));
    int64_t& most = bytes[static_cast<size_t>(device.stage)];
    most = std::max(most, device.arena_bytes);
  }
  return bytes;
}

int64_t bytes_of_fullest_host(const std::vector<DeviceReport>& devices) {
  std::map<std::string, int64_t> hosts;
  int64_t most = 0;
  for (const DeviceReport& device : devices) {
    int64_t& sum = hosts[device.id.substr(0, device.id.find(':'))];
    sum += device.arena_bytes;
    most = std::max(most, sum);
  }
  return most;
}

Json to_json(const compile::MemoryBreakdown& breakdown) {
  Json json;
  json["weights"] = breakdown.weights;
  json["gradients"] = breakdown.gradients;
  json["optimizer"] = breakdown.optimizer;
  json["activations"] = breakdown.activations;
  json["workspace"] = breakdown.workspace;
  json["communication"] = breakdown.communication;
  return json;
}

Json to_json(const DeviceReport& report) {
  Json json;
  json["id"] = report.id;
  json["stage"] = report.stage;
  json["peak_bytes"] = report.arena_bytes;
  json["resident_bytes"] = report.resident_bytes;
  json["breakdown"] = to_json(report.breakdown);
  Json& communication = json["communication"];
  communication["operations"] = Json::object();
  for (int i = 0; i < comm::kOperations; ++i) {
    const comm::OperationStatistics& one = report.communication.operations[static_cast<size_t>(i)];
    if (one.calls == 0) continue;
    communication["operations"][comm::operation_name(static_cast<comm::Operation>(i))] = {
        {"calls", one.calls}, {"bytes", one.bytes}, {"seconds_waited", one.seconds_waited}};
  }
  communication["background_seconds"] = report.background_seconds;
  communication["exposed_seconds"] = report.exposed_seconds;
  if (report.background_seconds > 0) {
    communication["hidden_share"] =
        std::max(0.0, 1 - report.exposed_seconds / report.background_seconds);
  }
  return json;
}

DeviceReport parse_device_report(const Json& json) {
  DeviceReport report;
  report.id = json.at("id").get<std::string>();
  report.stage = json.at("stage").get<int>();
  report.arena_bytes = json.at("peak_bytes").get<int64_t>();
  report.resident_bytes = json.at("resident_bytes").get<int64_t>();
  const Json& bytes = json.at("breakdown");
  const auto field = [&](const char* name) { return bytes.at(name).get<int64_t>(); };
  report.breakdown = {field("weights"),     field("gradients"), field("optimizer"),
                      field("activations"), field("workspace"), field("communication")};
  const Json& communication = json.at("communication");
  for (int i = 0; i < comm::kOperations; ++i) {
    const char* name = comm::operation_name(static_cast<comm::Operation>(i));
    if (!communication.at("operations").contains(name)) continue;
    const Json& one = communication.at("operations").at(name);
    report.communication.operations[static_cast<size_t>(i)] = {
        one.at("calls").get<int64_t>(), one.at("bytes").get<int64_t>(),
        one.at("seconds_waited").get<double>()};
  }
  report.background_seconds = communication.at("background_seconds").get<double>();
  report.exposed_seconds = communication.at("exposed_seconds").get<double>();
  return report;
}

std::vector<DeviceReport> describe_devices(Engine& engine) {
  std::vector<DeviceReport> own;
  for (const auto& worker : engine.workers()) own.push_back(report_of(*worker));
  return gather_reports(engine, own);
}

std::vector<DeviceReport> gather_reports(Engine& engine, const std::vector<DeviceReport>& own) {
  Json list = Json::array();
  for (const DeviceReport& report : own) list.push_back(to_json(report));
  std::vector<std::string> texts = {list.dump()};
  if (engine.rank_group() != nullptr) texts = comm::gather_texts(*engine.rank_group(), texts[0]);
  std::vector<DeviceReport> reports;
  for (const std::string& text : texts) {
    for (const Json& json : Json::parse(text)) reports.push_back(parse_device_report(json));
  }
  std::stable_sort(reports.begin(), reports.end(),
                   [](const DeviceReport& a, const DeviceReport& b) { return a.stage < b.stage; });
  return reports;
}

}  // namespace millrace::train
