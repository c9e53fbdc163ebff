#include "planner/cluster/cluster.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "base/json_text.h"
#include "base/text.h"
#include "planner/cluster/processor_machine.h"
#include "planner/cluster/this_machine.h"
#include "planner/cluster/topology.h"
#include "planner/cluster/yaml.h"
#include "planner/data/embedded.h"

namespace millrace::planner {
namespace {

constexpr int kMostMachines = 65536;
constexpr int kMostDevicesOfMachine = 1024;
constexpr double kMost = 1e30;
constexpr double kUsualOperations = 32;  // a cycle, of a core with vectors of eight float32

// One object of the description; knows its place for error messages.
class Fields {
 public:
  Fields(const Json& json, std::string place, std::string file)
      : json_(json), place_(std::move(place)), file_(std::move(file)) {
    if (!json_.is_object()) {
      fail_input("'{}': {} must be an object.", file_, place_.empty() ? "the description" : place_);
    }
  }

  bool has(const char* name) const { return json_.contains(name); }
  std::string path(std::string_view name) const {
    return place_.empty() ? std::string(name) : fmt::format("{}.{}", place_, name);
  }

  const Json& at(const char* name) const {
    if (!has(name)) fail_input("'{}': field '{}' is missing.", file_, path(name));
    return json_[name];
  }

  double number(const char* name, double least, double most = kMost) const {
    const Json& value = at(name);
    const double result = value.is_number() ? value.get<double>() : std::nan("");
    if (!(result >= least && result <= most)) {
      fail_input("'{}': field '{}' must be a number from {:g} to {:g}.", file_, path(name), least,
                 most);
    }
    return result;
  }

  int count(const char* name, int most) const {
    const double value = number(name, 1, most);
    if (value != std::floor(value)) {
      fail_input("'{}': field '{}' must be a whole number.", file_, path(name));
    }
    return static_cast<int>(value);
  }

  bool flag(const char* name) const {
    const Json& value = at(name);
    if (!value.is_boolean()) {
      fail_input("'{}': field '{}' must be true or false.", file_, path(name));
    }
    return value.get<bool>();
  }

  std::string text(const char* name) const {
    const Json& value = at(name);
    if (!value.is_string()) fail_input("'{}': field '{}' must be a text.", file_, path(name));
    return value.get<std::string>();
  }

  Fields object(const char* name) const { return {at(name), path(name), file_}; }

  void allow(const std::vector<std::string>& names) const {
    for (const auto& [name, value] : json_.items()) {
      if (std::find(names.begin(), names.end(), name) != names.end()) continue;
      const std::string close = nearest(name, names);
      fail_input("'{}': field '{}' is not known{}.", file_, path(name.substr(0, 40)),
                 close.empty() ? "" : fmt::format(", did you mean '{}'?", close));
    }
  }

  const Json& json() const { return json_; }
  const std::string& file() const { return file_; }

 private:
  const Json& json_;
  std::string place_;
  std::string file_;
};

// The numbers of a device by their names; those that must be there have a least value of 1.
template <typename Device, typename Visit>
void visit_device(Device& device, Visit&& visit) {
  visit("memory_bytes", device.memory_bytes, 1);
  visit("fp32_operations", device.fp32_operations, 1);
  visit("tf32_operations", device.tf32_operations, 0);
  visit("fp16_operations", device.fp16_operations, 0);
  visit("bf16_operations", device.bf16_operations, 0);
  visit("memory_bandwidth", device.memory_bandwidth, 1);
}

simulate::DeviceKind parse_device(const Fields& fields) {
  simulate::DeviceKind device;
  std::vector<std::string> names = {"name"};
  visit_device(device, [&](const char* name, double, int) { names.emplace_back(name); });
  fields.allow(names);
  device.name = fields.text("name");
  visit_device(device, [&](const char* name, double& value, int least) {
    if (least > 0 || fields.has(name)) value = fields.number(name, least);
  });
  return device;
}

simulate::LinkClass parse_link(const Fields& fields) {
  fields.allow({"bandwidth", "latency"});
  return {fields.number("bandwidth", 1), fields.number("latency", 0, 10)};
}

// The text that nvidia-smi would print for rows such as "X PIX PHB".
std::string as_topology_text(const Fields& fields) {
  const Json& rows = fields.at("topology");
  if (!rows.is_array() || rows.empty() || rows.size() > kMostDevicesOfMachine) {
    fail_input("'{}': field '{}' must be a list of rows such as \"X PIX PHB\", one a device.",
               fields.file(), fields.path("topology"));
  }
  std::string header, body;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!rows[i].is_string()) {
      fail_input("'{}': row {} of field '{}' must be a text such as \"X PIX PHB\".", fields.file(),
                 i, fields.path("topology"));
    }
    std::string row = rows[i].get<std::string>();
    std::replace(row.begin(), row.end(), '\n', ' ');
    header += fmt::format(" GPU{}", i);
    body += fmt::format("GPU{} {}\n", i, row);
  }
  return header + "\n" + body;
}

simulate::LinkMatrix parse_links(const Fields& fields, int devices) {
  if (fields.has("topology") == fields.has("topology_file") && devices > 1) {
    fail_input("'{}': give one of the fields 'topology' and 'topology_file'.", fields.file());
  }
  if (!fields.has("topology") && !fields.has("topology_file")) return {{"X"}};
  Topology topology;
  if (fields.has("topology")) {
    topology = parse_topology(as_topology_text(fields),
                              fields.file() + "', field '" + fields.path("topology"));
  } else {
    const std::filesystem::path named = fields.text("topology_file");
    if (named.is_absolute() || std::find(named.begin(), named.end(), "..") != named.end()) {
      fail_input("'{}': the field 'topology_file' is '{}'; name a file beside this one or below.",
                 fields.file(), named.string());
    }
    const auto path = std::filesystem::path(fields.file()).parent_path() / named;
    topology = parse_topology(read_text(path), path.string());
  }
  if (topology.links.size() != static_cast<size_t>(devices)) {
    fail_input("'{}': the topology has {} devices but 'devices_per_machine' is {}.", fields.file(),
               topology.links.size(), devices);
  }
  return topology.links;
}

void check_classes(const simulate::Cluster& cluster, const std::string& file) {
  for (const auto& row : cluster.links) {
    for (const std::string& link : row) {
      if (link != "X" && !cluster.classes.contains(simulate::class_of(link))) {
        fail_input("'{}': field 'links' has no class '{}', which the topology uses.", file,
                   simulate::class_of(link));
      }
    }
  }
}

simulate::Cluster to_cluster(const Json& json, const std::string& file) {
  const Fields fields(json, "", file);
  fields.allow({"name", "source", "machines", "devices_per_machine", "host_cores",
                "host_memory_bytes", "devices_in_host_memory", "device", "links", "topology",
                "topology_file", "network"});
  simulate::Cluster cluster;
  cluster.name = fields.text("name");
  if (fields.has("source")) cluster.source = fields.text("source");
  cluster.machines = fields.has("machines") ? fields.count("machines", kMostMachines) : 1;
  cluster.devices_per_machine = fields.count("devices_per_machine", kMostDevicesOfMachine);
  if (fields.has("host_cores")) cluster.host_cores = fields.count("host_cores", 65536);
  if (fields.has("host_memory_bytes")) {
    cluster.host_memory_bytes = fields.number("host_memory_bytes", 1);
  }
  if (fields.has("devices_in_host_memory")) {
    cluster.devices_in_host_memory = fields.flag("devices_in_host_memory");
  }
  cluster.device = parse_device(fields.object("device"));
  if (fields.has("links")) {
    const Fields links = fields.object("links");
    for (const auto& [name, value] : links.json().items()) {
      cluster.classes[name] = parse_link({value, links.path(name), file});
    }
  }
  cluster.links = parse_links(fields, cluster.devices_per_machine);
  check_classes(cluster, file);
  if (cluster.machines > 1 || fields.has("network")) {
    cluster.network = parse_link(fields.object("network"));
  }
  return cluster;
}

Json parse_described(std::string_view text, const std::string& file) {
  if (is_nested_too_deep(text)) fail_input("'{}' has brackets nested too deep.", file);
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& error) {
    fail_input("'{}' is not JSON: mistake at byte {}.", file, error.byte);
  } catch (const Json::out_of_range&) {
    fail_input("'{}' has a number that is too large.", file);
  }
}

Json builtin_clusters() { return Json::parse(embedded_file("clusters.json")); }

}  // namespace

simulate::Cluster parse_cluster(std::string_view text, const std::filesystem::path& file) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  const char first = begin == std::string_view::npos ? ' ' : text[begin];
  if (first == '<') {
    simulate::Cluster cluster = cluster_of(parse_lstopo(text, file.string()), kUsualOperations);
    cluster.name = file.stem().string();
    return cluster;
  }
  const bool json = first == '{' || first == '[';
  return to_cluster(json ? parse_described(text, file.string()) : parse_yaml(text, file.string()),
                    file.string());
}

Json describe(const simulate::Cluster& cluster) {
  const auto link = [](const simulate::LinkClass& value) {
    return Json{{"bandwidth", value.bandwidth}, {"latency", value.latency}};
  };
  Json json = {{"name", cluster.name},
               {"source", cluster.source},
               {"machines", cluster.machines},
               {"devices_per_machine", cluster.devices_per_machine}};
  if (cluster.host_cores > 0) json["host_cores"] = cluster.host_cores;
  if (cluster.host_memory_bytes > 0) json["host_memory_bytes"] = cluster.host_memory_bytes;
  if (cluster.devices_in_host_memory) json["devices_in_host_memory"] = true;
  json["device"] = {{"name", cluster.device.name}};
  visit_device(cluster.device,
               [&](const char* name, double value, int) { json["device"][name] = value; });
  json["links"] = Json::object();
  for (const auto& [name, value] : cluster.classes) json["links"][name] = link(value);
  json["topology"] = Json::array();
  for (const auto& row : cluster.links)
    json["topology"].push_back(fmt::format("{}", fmt::join(row, " ")));
  if (cluster.network.bandwidth > 0) json["network"] = link(cluster.network);
  return json;
}

std::vector<std::string> builtin_cluster_names() {
  std::vector<std::string> names = {"this-machine"};
  for (const Json& json : builtin_clusters()) names.push_back(json["name"].get<std::string>());
  return names;
}

simulate::Cluster find_cluster(const std::string& name_or_file, std::string_view flag) {
  if (name_or_file == "this-machine") return this_machine();
  for (const Json& json : builtin_clusters()) {
    if (json["name"] == name_or_file) return to_cluster(json, name_or_file);
  }
  std::error_code status;
  if (std::filesystem::is_regular_file(name_or_file, status)) {
    return parse_cluster(read_text(name_or_file), name_or_file);
  }
  std::vector<std::string> names = builtin_cluster_names();
  names.push_back("here");
  const std::string close = nearest(name_or_file, names);
  fail_input("{} is '{}', which is neither a file nor one of {}{}.", flag, name_or_file,
             fmt::join(names, ", "),
             close.empty() ? "" : fmt::format(" (did you mean '{}'?)", close));
}

}  // namespace millrace::planner
