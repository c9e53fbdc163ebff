#include "planner/cluster/topology.h"

#include <gmock/gmock.h>

#include <random>

#include "base/error.h"
#include "base/file.h"

namespace millrace::planner {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string published(const std::string& name) {
  return read_text(std::string(MILLRACE_TEST_DATA) + "/topologies/" + name);
}

void expect_refusal(const std::string& text, const std::string& part) {
  try {
    parse_topology(text, "some.txt");
    ADD_FAILURE() << "accepted: " << text;
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("'some.txt'"), HasSubstr(part)));
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
  }
}

TEST(TopologyTest, ReadsPcieMachine) {
  const Topology topology = parse_topology(published("titanv-pcie-8.txt"), "titan");
  ASSERT_EQ(topology.devices.size(), 8u);
  EXPECT_EQ(topology.devices[7], "GPU7");
  EXPECT_THAT(topology.links[1], ElementsAre("PIX", "X", "PHB", "PHB", "SYS", "SYS", "SYS", "SYS"));
  EXPECT_EQ(topology.links[6][7], "PIX");
}

TEST(TopologyTest, ReadsNvlinkMachineWithAdapter) {
  const Topology topology = parse_topology(published("v100-sxm2-8.txt"), "v100");
  ASSERT_EQ(topology.devices.size(), 8u);
  for (size_t i = 0; i < 8; ++i) {
    int links = 0;
    for (const std::string& link : topology.links[i]) links += simulate::bonded_links(link);
    EXPECT_EQ(links, 6) << "of device " << i;
  }
}

TEST(TopologyTest, ReadsColouredHeaderOfNewerVersions) {
  const Topology topology = parse_topology(
      "\t\x1b[4mGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\x1b[0m\r\n"
      "GPU0\t X \tNV12\tPXB\t0-7\t0\r\nGPU1\tNV12\t X \tNODE\t0-7\t0\r\n",
      "new");
  EXPECT_EQ(simulate::bonded_links(topology.links[0][1]), 12);
  EXPECT_THAT(topology.devices, ElementsAre("GPU0", "GPU1"));
  EXPECT_THAT(topology.links[0], ElementsAre("X", "NV12"));
}

TEST(TopologyTest, SaysWhatIsWrong) {
  expect_refusal("", "is empty");
  expect_refusal("hello\n", "no column GPU0");
  expect_refusal("\tGPU0\tGPU1\nGPU0\tX\tPIX\n", "row of GPU1 is missing");
  expect_refusal("\tGPU0\tGPU1\nGPU0\tX\nGPU1\tPIX\tX\n", "line 2: GPU0 has 1 links and needs 2");
  expect_refusal("\tGPU0\tGPU1\nGPU0\tX\tPUX\nGPU1\tPIX\tX\n", "GPU0 to GPU1 is 'PUX'");
  expect_refusal("\tGPU0\tGPU1\nGPU0\tX\tNV\nGPU1\tNV\tX\n", "is 'NV'");
  expect_refusal("\tGPU0\tGPU1\nGPU0\tPIX\tX\nGPU1\tPIX\tX\n", "GPU0 to GPU0 is 'PIX'");
  expect_refusal("\tGPU0\tGPU1\nGPU0\tX\tPIX\nGPU1\tPHB\tX\n", "PIX but back it is PHB");
  expect_refusal("\tGPU0\tGPU0\nGPU0\tX\tPIX\n", "occurs twice");
  expect_refusal("\tGPU0\tGPU1\nGPU1\tX\tPIX\nGPU0\tPIX\tX\n", "row of GPU1, but GPU0 is next");
  expect_refusal("\tmlx5_0\tGPU0\n", "behind a network card");
}

TEST(TopologyTest, DamagedFilesAreReadOrRefused) {
  std::mt19937 random(7);
  for (const char* name : {"titanv-pcie-8.txt", "v100-sxm2-8.txt"}) {
    const std::string whole = published(name);
    int refused = 0;
    for (int i = 0; i < 3000; ++i) {
      std::string text = whole.substr(0, i % 3 == 0 ? random() % whole.size() : whole.size());
      for (unsigned hits = random() % 4; hits > 0 && !text.empty(); --hits) {
        text[random() % text.size()] = static_cast<char>(random());
      }
      try {
        const Topology topology = parse_topology(text, name);
        for (const auto& row : topology.links) ASSERT_EQ(row.size(), topology.links.size());
      } catch (const InputError&) {
        ++refused;
      }
    }
    EXPECT_GT(refused, 500);
  }
}

}  // namespace
}  // namespace millrace::planner
