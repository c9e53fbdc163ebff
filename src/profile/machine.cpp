#include "profile/machine.h"

#include <unistd.h>

#include <algorithm>
#include <thread>

#include "backend/cpu/cores.h"
#include "backend/device.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json_text.h"
#include "base/version.h"
#include "comm/job_groups.h"
#include "comm/mpi_group.h"
#include "kernels/convolution_choices.h"
#include "kernels/processor.h"
#include "planner/cluster/this_machine.h"
#include "profile/exchange.h"
#include "profile/measure.h"
#include "train/plan.h"

namespace millrace::profile {
namespace {

constexpr int kFileVersion = 2;

bool has_bf16() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512bf16");
#else
  return true;
#endif
}

struct DeviceSpeed {
  train::MachineSpeed speed;
  double bf16 = 0;
};

// The slowest device, with all at work at once.
DeviceSpeed measure_devices(const std::vector<std::vector<int>>& teams) {
  std::vector<DeviceSpeed> speeds(teams.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < teams.size(); ++i) {
    threads.emplace_back([&, i] {
      backend::Device device({.threads = static_cast<int>(teams[i].size()), .cores = teams[i]});
      speeds[i].speed = train::measure_speed(device);
      if (has_bf16()) device.run([&] { speeds[i].bf16 = train::measure_convolutions(true); });
    });
  }
  for (std::thread& thread : threads) thread.join();
  DeviceSpeed slowest = speeds[0];
  for (const DeviceSpeed& one : speeds) {
    train::MachineSpeed& speed = slowest.speed;
    speed.operations_per_second =
        std::min(speed.operations_per_second, one.speed.operations_per_second);
    speed.bytes_per_second = std::min(speed.bytes_per_second, one.speed.bytes_per_second);
    slowest.bf16 = std::min(slowest.bf16, one.bf16);
  }
  return slowest;
}

}  // namespace

simulate::Cluster measure_machine(const MachineRequest& request) {
  simulate::Cluster cluster = planner::this_machine();
  const double memory = cluster.device.memory_bytes * cluster.devices_per_machine;
  const backend::DeviceCores cores =
      backend::cores_of_devices(comm::launch_place(), request.devices, request.threads);
  const DeviceSpeed speed = measure_devices(cores.teams);
  const ExchangeSpeed local = measure_local_exchange(2);
  cluster.name = "this-machine-measured";
  cluster.source = "measured by millrace profile --machine";
  cluster.devices_per_machine = request.devices;
  cluster.host_cores = backend::available_cores();
  cluster.device.memory_bytes = memory / request.devices;
  cluster.device.fp32_operations = speed.speed.operations_per_second;
  cluster.device.fp16_operations = speed.speed.operations_per_second;
  cluster.device.bf16_operations = speed.bf16;
  cluster.device.memory_bandwidth = speed.speed.bytes_per_second;
  cluster.classes = {{"NODE", local.message}};
  cluster.links = simulate::equal_links(request.devices, "NODE");
  if (request.processes != nullptr && request.processes->size() > 1) {
    comm::JobGroups groups(std::vector<int>(static_cast<size_t>(request.processes->size()), 1),
                           request.processes);
    comm::Group group = groups.make(groups.all()).front();
    cluster.network = measure_exchange(group).message;
    cluster.machines = group.size();
  }
  return cluster;
}

namespace {

// The descriptions in the file, by machine.
Json read_machines(const std::filesystem::path& path, const std::string& identity,
                   train::TrainingObserver& observer) {
  std::error_code error;
  if (path.empty() || (!std::filesystem::exists(path, error) && !error)) return Json::object();
  if (error) {
    observer.on_message(train::Severity::warning,
                        fmt::format("'{}' cannot be read: {}; this machine is "
                                    "measured.",
                                    path.string(), error.message()));
    return Json::object();
  }
  const Json file = parse_json(read_text(path));
  if (!file.is_object() || file.value("version", Json()) != kFileVersion ||
      !file.value("machines", Json()).is_object()) {
    observer.on_message(
        train::Severity::warning,
        fmt::format("'{}' does not say which machine it describes; this one is measured.",
                    path.string()));
    return Json::object();
  }
  const Json& machines = file["machines"];
  if (!machines.empty() && !machines.contains(identity)) {
    observer.on_message(train::Severity::warning,
                        fmt::format("'{}' describes another machine ({}); this one ({}) is "
                                    "measured.",
                                    path.string(), machines.begin().key(), identity));
  }
  return machines;
}

}  // namespace

std::filesystem::path machine_path() {
  const std::filesystem::path choices = kernels::ConvolutionChoices::default_path();
  return choices.empty() ? choices : choices.parent_path() / "machine.json";
}

std::string machine_identity() {
  char host[256] = {};
  if (::gethostname(host, sizeof(host) - 1) != 0) host[0] = '\0';
  return fmt::format("host {}, {} cores, {}, Millrace {}", host, backend::available_cores(),
                     kernels::processor_description(), kVersion);
}

simulate::Cluster cluster_here(train::TrainingObserver& observer) {
  const std::filesystem::path path = machine_path();
  const std::string identity = machine_identity();
  Json kept = read_machines(path, identity, observer);
  if (kept.contains(identity)) return planner::parse_cluster(kept[identity].dump(), path);
  const simulate::Cluster cluster =
      measure_machine({.devices = planner::this_machine().devices_per_machine});
  if (path.empty()) return cluster;
  try {
    std::filesystem::create_directories(path.parent_path());
    kept[identity] = planner::describe(cluster);
    write_text(path, Json{{"version", kFileVersion}, {"machines", kept}}.dump(2) + "\n");
    observer.on_message(train::Severity::note,
                        fmt::format("Measured this machine; kept in '{}'.", path.string()));
  } catch (const std::exception& error) {
    observer.on_message(train::Severity::warning,
                        fmt::format("The measured machine was not kept: {}", marked_text(error)));
  }
  return cluster;
}

}  // namespace millrace::profile
