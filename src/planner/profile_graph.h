// The part of a profile that is divided among workers, and who comes before whom in it.
#pragma once

#include <vector>

#include "planner/node_set.h"
#include "planner/profile.h"

namespace millrace::planner {

// What a set of operators costs together, per mini-batch.
struct Totals {
  double seconds = 0;
  double activation_bytes = 0;
  double parameter_bytes = 0;
};

// The profile without sources named `Input...` and sinks named `__getitem__...`. Nodes keep their
// numbers in the profile; every NodeSet has room for all of them. Refers to the profile, which must
// outlive it; never changes.
class ProfileGraph {
 public:
  // Throws InputError if nothing is left, or the profile has too many operators.
  explicit ProfileGraph(const Profile& profile);

  const Profile& profile() const { return profile_; }
  // The nodes that are left, each after those that feed it.
  const std::vector<int>& order() const { return order_; }
  // The first node in the order of the file that nothing feeds.
  int first_source() const { return first_source_; }

  const NodeSet& ancestors(int node) const { return ancestors_[node]; }
  const std::vector<int>& successors(int node) const { return successors_[node]; }

  NodeSet empty_set() const { return NodeSet(profile_.nodes.size()); }
  Totals totals(const NodeSet& nodes) const;
  // The members that no other member comes after.
  std::vector<int> last_nodes(const NodeSet& nodes) const;
  // Bytes that leave the prefix of an antichain: the activations of its nodes, and of each ancestor
  // of one of them that also feeds a node which neither is that one nor comes before it.
  double output_bytes(const std::vector<int>& antichain) const;

 private:
  void sort_nodes(const std::vector<bool>& kept);

  const Profile& profile_;
  std::vector<int> order_;
  int first_source_ = -1;
  std::vector<std::vector<int>> successors_;
  std::vector<NodeSet> ancestors_;
  std::vector<NodeSet> open_ancestors_;
};

}  // namespace millrace::planner
