#include "planner/antichain.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "reference.h"

namespace millrace::planner {
namespace {

using ::testing::ElementsAre;

reference::Nodes as_nodes(const NodeSet& set) {
  reference::Nodes nodes;
  set.for_each([&](int node) { nodes.insert(node); });
  return nodes;
}

void expect_same_states(const Profile& profile) {
  const ProfileGraph graph(profile);
  const StateSpace space = find_states(graph);
  const std::vector<reference::Cut> cuts = reference::find_cuts(profile);
  ASSERT_EQ(space.states.size(), cuts.size());
  for (const reference::Cut& cut : cuts) {
    size_t at = 0;
    while (at < space.states.size() && as_nodes(space.states[at].prefix) != cut.prefix) ++at;
    ASSERT_LT(at, space.states.size());
    const State& state = space.states[at];
    EXPECT_EQ(reference::Nodes(state.antichain.begin(), state.antichain.end()), cut.antichain);
    EXPECT_NEAR(state.totals.seconds, cut.seconds, 1e-12);
    EXPECT_DOUBLE_EQ(state.totals.activation_bytes, cut.activations);
    EXPECT_DOUBLE_EQ(state.totals.parameter_bytes, cut.parameters);
    EXPECT_DOUBLE_EQ(state.output_bytes, cut.output);
  }
  for (size_t j = 0; j < space.states.size(); ++j) {
    for (size_t k = 0; k < space.states.size(); ++k) {
      const auto& list = space.predecessors[j];
      const bool listed = std::find(list.begin(), list.end(), static_cast<int>(k)) != list.end();
      const bool inside = k != j && space.states[k].prefix.is_subset_of(space.states[j].prefix);
      EXPECT_EQ(listed, inside);
      EXPECT_TRUE(!listed || k < j);
    }
  }
}

TEST(AntichainTest, PublishedProfiles) {
  for (const auto& [name, states] : {std::pair("alexnet", 22u), std::pair("vgg16", 40u)}) {
    const Profile profile = reference::published(name);
    EXPECT_EQ(find_states(ProfileGraph(profile)).states.size(), states);
    expect_same_states(profile);
  }
}

TEST(AntichainTest, ADiamondCanBeCutAcrossBothBranches) {
  const Profile profile = reference::make_profile(4, {{0, 1}, {0, 2}, {1, 3}, {2, 3}}, 1);
  const StateSpace space = find_states(ProfileGraph(profile));
  ASSERT_EQ(space.states.size(), 5u);
  EXPECT_THAT(space.states[3].antichain, ElementsAre(1, 2));
  EXPECT_THAT(space.predecessors[3], ElementsAre(0, 1, 2));
  // The fork counts next to both branches, as in PipeDream.
  EXPECT_DOUBLE_EQ(space.states[3].output_bytes, profile.nodes[0].activation_bytes +
                                                     profile.nodes[1].activation_bytes +
                                                     profile.nodes[2].activation_bytes);
}

TEST(AntichainTest, RandomGraphsMatchTheDefinition) {
  for (unsigned seed = 0; seed < 120; ++seed) {
    SCOPED_TRACE(seed);
    expect_same_states(reference::random_profile(3 + static_cast<int>(seed % 8),
                                                 0.15 + 0.1 * (seed % 5), 1000 + 2 * seed));
  }
}

TEST(AntichainTest, InputsAndTakenItemsAreDroppedOnce) {
  Profile profile = reference::make_profile(6, {{0, 1}, {1, 2}, {2, 3}, {3, 4}, {1, 5}}, 3);
  profile.nodes[0].description = "Input0";
  profile.nodes[1].description = "Input of the second kind";
  profile.nodes[3].description = "__getitem__(0)";
  profile.nodes[4].description = "__getitem__(1)";
  EXPECT_THAT(ProfileGraph(profile).order(), ElementsAre(1, 2, 5, 3));
  expect_same_states(profile);
}

TEST(AntichainTest, UnconnectedNodesAreNamed) {
  const Profile profile = reference::make_profile(4, {{0, 1}, {2, 3}}, 3);
  EXPECT_THAT(find_states(ProfileGraph(profile)).unreached, ElementsAre(2, 3));
}

TEST(AntichainTest, TooManyWaysToCutAreRefused) {
  std::vector<std::pair<int, int>> edges;
  for (int branch = 1; branch <= 20; ++branch) edges.emplace_back(0, branch);
  const Profile profile = reference::make_profile(21, edges, 3);
  EXPECT_THROW(find_states(ProfileGraph(profile)), InputError);
}

TEST(AntichainTest, NothingButInputsIsRefused) {
  Profile profile = reference::make_profile(1, {}, 3);
  profile.nodes[0].description = "Input";
  EXPECT_THROW(ProfileGraph{profile}, InputError);
}

}  // namespace
}  // namespace millrace::planner
