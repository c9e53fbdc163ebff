#include "planner/cluster/cluster.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "base/error.h"
#include "base/file.h"
#include "planner/cluster/this_machine.h"
#include "planner/cluster/topology.h"

namespace millrace::planner {
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
  const simulate::Cluster cluster = parse_cluster(pair_of_machines().dump(), "some.json");
  EXPECT_EQ(cluster.devices(), 4);
  EXPECT_DOUBLE_EQ(cluster.link_between(0, 1).bandwidth, 50e9);
  EXPECT_DOUBLE_EQ(cluster.link_between(3, 2).bandwidth, 50e9);
  EXPECT_DOUBLE_EQ(cluster.link_between(1, 2).bandwidth, 1e9);
  EXPECT_DOUBLE_EQ(cluster.link_between(1, 2).latency, 1e-5);
  EXPECT_DOUBLE_EQ(cluster.device.operations(graph::DataType::f16), 1e12);
}

TEST(ClusterTest, DescriptionsComeBack) {
  for (const std::string& name : builtin_cluster_names()) {
    const simulate::Cluster cluster = find_cluster(name, "--cluster");
    const Json json = describe(cluster);
    EXPECT_EQ(describe(parse_cluster(json.dump(), "copy.json")), json) << name;
  }
}

TEST(ClusterTest, BuiltInsAreTheMachinesOfThePublishedTables) {
  const simulate::Cluster titan = find_cluster("titanv-8x2", "--cluster");
  EXPECT_EQ(titan.devices(), 16);
  EXPECT_DOUBLE_EQ(titan.device.memory_bytes, 12066.0 * 1024 * 1024);
  const auto read = [](const char* name) {
    const std::string path = std::string(MILLRACE_TEST_DATA) + "/topologies/" + name;
    return parse_topology(read_text(path), name).links;
  };
  EXPECT_EQ(titan.links, read("titanv-pcie-8.txt"));
  for (const char* name : {"v100-16gb-8", "v100-16gb-8x2", "v100-16gb-8x4", "v100-32gb-8"}) {
    const simulate::Cluster cluster = find_cluster(name, "--cluster");
    EXPECT_EQ(cluster.links, read("v100-sxm2-8.txt")) << name;
    EXPECT_DOUBLE_EQ(cluster.link_between(0, 3).bandwidth, 50e9);
  }
  EXPECT_EQ(find_cluster("v100-16gb-8x4", "--cluster").devices(), 32);
}

TEST(ClusterTest, ThisMachineHasCoresAndMemory) {
  const simulate::Cluster cluster = this_machine();
  EXPECT_GE(cluster.host_cores, 1);
  EXPECT_GE(cluster.devices_per_machine, 1);
  EXPECT_GT(cluster.device.memory_bytes, 1 << 26);
  EXPECT_GT(cluster.device.fp32_operations, 1e9);
  EXPECT_EQ(cluster.links.size(), static_cast<size_t>(cluster.devices_per_machine));
}

TEST(ClusterTest, HostsHaveMemoryWhereItIsKnown) {
  Json json = pair_of_machines();
  EXPECT_DOUBLE_EQ(parse_cluster(json.dump(), "some.json").host_memory_bytes, 0);
  json["host_memory_bytes"] = 64e9;
  json["devices_in_host_memory"] = true;
  const simulate::Cluster cluster = parse_cluster(json.dump(), "some.json");
  EXPECT_DOUBLE_EQ(cluster.host_memory_bytes, 64e9);
  EXPECT_TRUE(cluster.devices_in_host_memory);
  EXPECT_EQ(describe(cluster)["host_memory_bytes"], 64e9);
  json["devices_in_host_memory"] = 1;
  expect_refusal(json, "must be true or false");
  json["devices_in_host_memory"] = false;
  json["host_memory_bytes"] = 0;
  expect_refusal(json, "'host_memory_bytes' must be a number");
  EXPECT_GT(this_machine().host_memory_bytes, 1 << 26);
}

TEST(ClusterTest, YamlSaysTheSame) {
  const char* text = R"(# two machines
name: pair
machines: 2
devices_per_machine: 2
device: {name: d, memory_bytes: 1e9, fp32_operations: 1e12, memory_bandwidth: 1e11}
links:
  NV: {bandwidth: 25e9, latency: 1e-6}
topology:
  - X NV2
  - NV2 X
network:
  bandwidth: 1e9
  latency: 1e-5
)";
  EXPECT_EQ(describe(parse_cluster(text, "some.yaml")),
            describe(parse_cluster(pair_of_machines().dump(), "some.json")));
  const std::string numbered(text);
  EXPECT_EQ(parse_cluster(std::string(text).replace(numbered.find("pair"), 4, "'17'"), "a").name,
            "17");
}

TEST(ClusterTest, SaysWhatIsWrongInYaml) {
  expect_refusal(std::string("name: [1"), "mistake in line");
  expect_refusal(std::string("a: &a 1\nb: *c\n"), "mistake in line 2");
  expect_refusal(std::string("no fields at all"), "must be an object");
  expect_refusal(std::string(""), "must be an object");
  expect_refusal(std::string("? [1, 2]\n: 3\n"), "has no name");
  std::string bomb = "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1]\n";
  for (int i = 1; i < 12; ++i) {
    bomb += fmt::format("a{}: &a{} [*a{}, *a{}, *a{}, *a{}]\n", i, i, i - 1, i - 1, i - 1, i - 1);
  }
  expect_refusal(bomb, "more than");
  expect_refusal(std::string(100000, '-') + " x", "must be an object");
  std::string deep;
  for (int i = 0; i < 5000; ++i) deep += "- ";
  expect_refusal(deep + "x", "mistake in line 1");
}

// Two packages of two cores, with 1 and 2 GiB.
TEST(ClusterTest, TakesTheXmlOfLstopo) {
  std::string text = R"(<?xml version="1.0" encoding="UTF-8"?>
<topology version="2.0">
<object type="Machine" os_index="0" cpuset="0xf" complete_cpuset="0xf" allowed_cpuset="0xf"
 nodeset="0x3" complete_nodeset="0x3" allowed_nodeset="0x3" gp_index="1">
)";
  for (int node = 0; node < 2; ++node) {
    const int cores = 3 << (2 * node), memory = 1 << node;
    const std::string sets = fmt::format(
        R"(cpuset="{0:#x}" complete_cpuset="{0:#x}" nodeset="{1:#x}" complete_nodeset="{1:#x}")",
        cores, 1 << node);
    text += fmt::format(
        R"(<object type="Package" os_index="{0}" {1} gp_index="{2}"><info name="CPUModel" value="made up"/>
<object type="NUMANode" os_index="{0}" {1} gp_index="{3}" local_memory="{4}"/>)",
        node, sets, 10 + node, 20 + node, int64_t{memory} << 30);
    for (int core = 2 * node; core < 2 * node + 2; ++core) {
      const std::string own = fmt::format(
          R"(cpuset="{0:#x}" complete_cpuset="{0:#x}" nodeset="{1:#x}" complete_nodeset="{1:#x}")",
          1 << core, 1 << node);
      text += fmt::format(
          R"(<object type="Core" os_index="{0}" {1} gp_index="{2}"><object type="PU" os_index="{0}" {1} gp_index="{3}"/></object>)",
          core, own, 30 + core, 40 + core);
    }
    text += "</object>\n";
  }
  text += "</object>\n</topology>\n";
  const simulate::Cluster cluster = parse_cluster(text, "host.xml");
  EXPECT_EQ(cluster.name, "host");
  EXPECT_EQ(cluster.devices_per_machine, 2);
  EXPECT_EQ(cluster.host_cores, 4);
  EXPECT_EQ(cluster.device.name, "made up");
  EXPECT_DOUBLE_EQ(cluster.device.memory_bytes, 1 << 30);
  EXPECT_DOUBLE_EQ(cluster.device.fp32_operations, 2 * 2.5e9 * 32);
  for (size_t cut = 1; cut < text.size(); cut += 97) {
    EXPECT_THROW(parse_cluster(text.substr(0, cut), "some.json"), InputError) << cut;
  }
  expect_refusal(std::string("<html></html>"), "lstopo");
}

TEST(ClusterTest, SaysWhatIsWrong) {
  expect_refusal(std::string("{"), "not JSON");
  expect_refusal(std::string("[]"), "must be an object");
  expect_refusal(std::string(5000, '['), "nested too deep");
  expect_refusal(std::string(5000, '[') + std::string(5000, ']'), "nested too deep");
  expect_refusal(std::string(50, '['), "not JSON");
  expect_refusal(std::string(50, '[') + std::string(50, ']'), "must be an object");
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

TEST(ClusterTest, TopologiesOfElsewhereAreRefused) {
  Json json = pair_of_machines();
  json.erase("topology");
  for (const char* path : {"/etc/hostname", "../secret", "below/../../secret"}) {
    json["topology_file"] = path;
    expect_refusal(json, "beside this one or below");
  }
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
}  // namespace millrace::planner
