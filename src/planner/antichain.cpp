#include "planner/antichain.h"

#include <algorithm>
#include <set>

#include "base/error.h"

namespace millrace::planner {
namespace {

// Planning takes time with the square of the states, and with the cube on several levels.
constexpr size_t kMostStates = 4096;

std::vector<NodeSet> find_prefixes(const ProfileGraph& graph) {
  NodeSet first = graph.empty_set();
  first.insert(graph.first_source());
  std::set<NodeSet> known = {first};
  std::vector<NodeSet> prefixes = {first};
  for (size_t done = 0; done < prefixes.size(); ++done) {
    const NodeSet prefix = prefixes[done];
    NodeSet nexts = graph.empty_set();
    prefix.for_each([&](int node) {
      for (const int next : graph.successors(node)) nexts.insert(next);
    });
    nexts -= prefix;
    nexts.for_each([&](int next) {
      NodeSet longer = prefix;
      longer |= graph.ancestors(next);
      longer.insert(next);
      if (!known.insert(longer).second) return;
      if (known.size() > kMostStates) {
        fail_input(
            "The profile can be cut in more than {} ways; join operators of its parallel branches "
            "into one.",
            kMostStates);
      }
      prefixes.push_back(std::move(longer));
    });
  }
  return prefixes;
}

}  // namespace

StateSpace find_states(const ProfileGraph& graph) {
  StateSpace space;
  for (NodeSet& prefix : find_prefixes(graph)) {
    State state;
    state.antichain = graph.last_nodes(prefix);
    state.totals = graph.totals(prefix);
    state.output_bytes = graph.output_bytes(state.antichain);
    state.prefix = std::move(prefix);
    space.states.push_back(std::move(state));
  }
  std::stable_sort(space.states.begin(), space.states.end(), [](const State& a, const State& b) {
    return a.prefix.size() < b.prefix.size();
  });
  for (size_t j = 0; j < space.states.size(); ++j) {
    std::vector<int>& inside = space.predecessors.emplace_back();
    for (size_t k = 0; k < j; ++k) {
      if (space.states[k].prefix.is_subset_of(space.states[j].prefix)) {
        inside.push_back(static_cast<int>(k));
      }
    }
  }
  for (const int node : graph.order()) {
    if (!space.states.back().prefix.contains(node)) space.unreached.push_back(node);
  }
  return space;
}

}  // namespace millrace::planner
