#include "planner/cluster/cluster.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "base/file.h"
#include "planner/cluster/this_machine.h"
#include "planner/cluster/topology.h"

namespace millrace {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

Json pair_of_machines() {
  return Json::parse(R"({"name": "pair", "machines": 2, "devices_per_machine": 2,
    "device": {"name": "d", "memory_bytes": 1e9, "fp32_operations": 1e12, "memory_bandwidth": 1e11},
    "links": {"NV": {"bandwidth": 25e9, "latency": 1e-6}},
    "topology": ["X NV2", "NV2 X"],
    "network": {"bandwidth": 1e9, "latency": 1e-5}})");
}

void expect_refusal(const std::string& text, const std::string& part) {
  try {
    parse_cluster(text, "some.json");
    ADD_FAILURE() << "accepted: " << text;
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("'some.json'"), HasSubstr(part)));
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
  }
}

void expect_refusal(const Json& json, const std::string& part) {
  expect_refusal(json.dump(), part);
}

TEST(ClusterTest, LinksAddBondsAndCrossTheNetwork) {
  const Cluster cluster = parse_cluster(pair_of_machines().dump(), "some.json");
  EXPECT_EQ(cluster.devices(), 4);
  EXPECT_DOUBLE_EQ(cluster.link_between(0, 1).bandwidth, 50e9);
  EXPECT_DOUBLE_EQ(cluster.link_between(3, 2).bandwidth, 50e9);
  EXPECT_DOUBLE_EQ(cluster.link_between(1, 2).bandwidth, 1e9);
  EXPECT_DOUBLE_EQ(cluster.link_between(1, 2).latency, 1e-5);
  EXPECT_DOUBLE_EQ(cluster.device.operations(DataType::f16), 1e12);
}

TEST(ClusterTest, DescriptionsComeBack) {
  for (const std::string& name : builtin_cluster_names()) {
    const Cluster cluster = find_cluster(name, "--cluster");
    const Json json = describe(cluster);
    EXPECT_EQ(describe(parse_cluster(json.dump(), "copy.json")), json) << name;
  }
}

TEST(ClusterTest, BuiltInsAreTheMachinesOfThePublishedTables) {
  const Cluster titan = find_cluster("titanv-8x2", "--cluster");
  EXPECT_EQ(titan.devices(), 16);
  EXPECT_DOUBLE_EQ(titan.device.memory_bytes, 12066.0 * 1024 * 1024);
  const auto read = [](const char* name) {
    const std::string path = std::string(MILLRACE_TEST_DATA) + "/topologies/" + name;
    return parse_topology(read_text(path), name).links;
  };
  EXPECT_EQ(titan.links, read("titanv-pcie-8.txt"));
  for (const char* name : {"v100-16gb-8", "v100-16gb-8x2", "v100-16gb-8x4", "v100-32gb-8"}) {
    const Cluster cluster = find_cluster(name, "--cluster");
    EXPECT_EQ(cluster.links, read("v100-sxm2-8.txt")) << name;
    EXPECT_DOUBLE_EQ(cluster.link_between(0, 3).bandwidth, 50e9);
  }
  EXPECT_EQ(find_cluster("v100-16gb-8x4", "--cluster").devices(), 32);
}

TEST(ClusterTest, ThisMachineHasCoresAndMemory) {
  const Cluster cluster = this_machine();
  EXPECT_GE(cluster.host_cores, 1);
  EXPECT_GE(cluster.devices_per_machine, 1);
  EXPECT_GT(cluster.device.memory_bytes, 1 << 26);
  EXPECT_GT(cluster.device.fp32_operations, 1e9);
  EXPECT_EQ(cluster.links.size(), static_cast<size_t>(cluster.devices_per_machine));
}

TEST(ClusterTest, SaysWhatIsWrong) {
  expect_refusal(std::string("{"), "not JSON");
  expect_refusal(std::string("[]"), "must be an object");
  expect_refusal(std::string(5000, '['), "not JSON");
  expect_refusal(std::string(5000, '[') + std::string(5000, ']'), "must be an object");
  expect_refusal(std::string("{\"machines\": 1e999}"), "too large");
  Json json = pair_of_machines();
  json.erase("device");
  expect_refusal(json, "'device' is missing");
  json = pair_of_machines();
  json["device"]["memory_bytes"] = -1;
  expect_refusal(json, "'device.memory_bytes' must be a number");
  json["device"]["memory_bytes"] = "much";
  expect_refusal(json, "'device.memory_bytes' must be a number");
  json = pair_of_machines();
  json["devices_per_machine"] = 3;
  expect_refusal(json, "topology has 2 devices");
  json["devices_per_machine"] = 1.5;
  expect_refusal(json, "whole number");
  json = pair_of_machines();
  json["links"] = Json::object();
  expect_refusal(json, "no class 'NV'");
  json = pair_of_machines();
  json["topology"][1] = "NV1 X";
  expect_refusal(json, "but back it is");
  json = pair_of_machines();
  json["topology"] = 7;
  expect_refusal(json, "list of rows");
  json = pair_of_machines();
  json.erase("network");
  expect_refusal(json, "'network' is missing");
  json = pair_of_machines();
  json["netwrok"] = 1;
  expect_refusal(json, "did you mean 'network'");
}

TEST(ClusterTest, UnknownNamesGetASuggestion) {
  try {
    find_cluster("titanv8", "--cluster");
    ADD_FAILURE();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("--cluster"), HasSubstr("did you mean 'titanv-8'")));
  }
}

}  // namespace
}  // namespace millrace
