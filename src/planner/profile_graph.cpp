#include "planner/profile_graph.h"

#include <algorithm>
#include <cassert>

#include "base/error.h"

namespace millrace::planner {
namespace {

// Sets of ancestors take a bit per pair of operators.
constexpr size_t kMostOperators = 16384;

std::vector<bool> choose_kept(const Profile& profile) {
  std::vector<bool> fed(profile.nodes.size());
  std::vector<bool> feeds(profile.nodes.size());
  for (const auto& [from, to] : profile.edges) {
    feeds[from] = true;
    fed[to] = true;
  }
  std::vector<bool> kept(profile.nodes.size());
  for (size_t node = 0; node < kept.size(); ++node) {
    const std::string& description = profile.nodes[node].description;
    kept[node] = !(!fed[node] && description.starts_with("Input")) &&
                 !(!feeds[node] && description.starts_with("__getitem__"));
  }
  return kept;
}

}  // namespace

ProfileGraph::ProfileGraph(const Profile& profile) : profile_(profile) {
  if (profile.nodes.size() > kMostOperators) {
    fail_input("The profile has {} operators; at most {} can be planned.", profile.nodes.size(),
               kMostOperators);
  }
  const std::vector<bool> kept = choose_kept(profile);
  successors_.resize(kept.size());
  for (const auto& [from, to] : profile.edges) {
    if (kept[from] && kept[to]) successors_[from].push_back(to);
  }
  sort_nodes(kept);
  if (order_.empty()) fail_input("The profile has nothing to plan: all operators are inputs.");

  ancestors_.assign(kept.size(), empty_set());
  for (const int node : order_) {
    for (const int next : successors_[node]) {
      ancestors_[next] |= ancestors_[node];
      ancestors_[next].insert(node);
    }
  }
  open_ancestors_.assign(kept.size(), empty_set());
  for (const int node : order_) {
    ancestors_[node].for_each([&](int before) {
      for (const int next : successors_[before]) {
        if (next == node || ancestors_[node].contains(next)) continue;
        open_ancestors_[node].insert(before);
      }
    });
  }
}

void ProfileGraph::sort_nodes(const std::vector<bool>& kept) {
  std::vector<int> waiting(kept.size());
  for (const std::vector<int>& nexts : successors_) {
    for (const int next : nexts) ++waiting[next];
  }
  for (size_t node = 0; node < kept.size(); ++node) {
    if (kept[node] && waiting[node] == 0) order_.push_back(static_cast<int>(node));
  }
  if (!order_.empty()) first_source_ = order_.front();
  for (size_t done = 0; done < order_.size(); ++done) {
    const int node = order_[done];
    for (const int next : successors_[node]) {
      if (--waiting[next] == 0) order_.push_back(next);
    }
  }
  assert(static_cast<size_t>(std::count(kept.begin(), kept.end(), true)) == order_.size());
}

Totals ProfileGraph::totals(const NodeSet& nodes) const {
  Totals sum;
  double milliseconds = 0;
  nodes.for_each([&](int index) {
    const ProfileNode& node = profile_.nodes[index];
    milliseconds +=
        node.forward_milliseconds + node.backward_milliseconds + node.update_milliseconds;
    sum.activation_bytes += node.activation_bytes;
    sum.parameter_bytes += node.parameter_bytes;
  });
  sum.seconds = milliseconds / 1000;
  return sum;
}

std::vector<int> ProfileGraph::last_nodes(const NodeSet& nodes) const {
  NodeSet last = nodes;
  nodes.for_each([&](int node) { last -= ancestors_[node]; });
  std::vector<int> result;
  last.for_each([&](int node) { result.push_back(node); });
  return result;
}

double ProfileGraph::output_bytes(const std::vector<int>& antichain) const {
  NodeSet sending = empty_set();
  for (const int node : antichain) {
    sending.insert(node);
    sending |= open_ancestors_[node];
  }
  return totals(sending).activation_bytes;
}

}  // namespace millrace::planner
