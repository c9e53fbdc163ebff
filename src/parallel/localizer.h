// Builds one member's graph; used by localize.cpp and expansions.cpp.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "graph/operator_definition.h"
#include "parallel/shard.h"
#include "passes/rewrite.h"

namespace millrace {

// Keeps, for tensors of the whole graph, the member's tensors that stand for them, in each way in
// which somebody has wanted them. The sharded graph must outlive it.
class Localizer {
 public:
  Localizer(const ShardedGraph& sharded, int member);

  Graph run();

  const Graph& whole() const { return sharded_.graph; }
  Graph& local() { return local_; }
  int member() const { return member_; }
  int members() const { return sharded_.members; }

  // The member's tensor for a whole one, boxed as wanted.
  TensorId boxed(TensorId whole, const Sharding& wanted);

  // Boxes a tensor of the member's graph whose whole has this shape.
  TensorId box(TensorId local, const Shape& whole, const Sharding& from, const Sharding& to);

  // Says that `local` stands for `whole` as that is made, and gives it its name.
  void stand_for(TensorId whole, TensorId local);

  // Collects the members' tensors along axis 0 and remembers it under this name.
  TensorId gathered(TensorId local);

  std::string unique_name(const std::string& name) { return names_.take(name); }

 private:
  void add_persistent(TensorId id);
  void add_operator(OperatorId id);
  void add_results();
  void add_total(TensorId id);
  Attributes talk() const;
  Attributes talk(const Sharding& sharding, const Shape& whole) const;

  const ShardedGraph& sharded_;
  const int member_;
  Graph local_;
  UniqueNames names_;
  std::map<std::pair<TensorId, std::string>, TensorId> made_;  // by whole tensor and sharding
};

}  // namespace millrace
