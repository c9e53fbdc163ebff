// Builds one member's graph; used by localize.cpp and expansions.cpp.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "graph/operator_definition.h"
#include "parallel/shard.h"
#include "passes/rewrite.h"

namespace millrace::parallel {

// Keeps, for tensors of the whole graph, the member's tensors that stand for them, in each way in
// which somebody has wanted them. The sharded graph must outlive it.
class Localizer {
 public:
  Localizer(const ShardedGraph& sharded, int member);

  graph::Graph run();

  const graph::Graph& whole() const { return sharded_.graph; }
  graph::Graph& local() { return local_; }
  int member() const { return member_; }
  int members() const { return sharded_.members; }

  // The member's tensor for a whole one, boxed as wanted.
  graph::TensorId boxed(graph::TensorId whole, const graph::Sharding& wanted);

  // Boxes a tensor of the member's graph whose whole has this shape.
  graph::TensorId box(graph::TensorId local, const graph::Shape& whole, const graph::Sharding& from,
                      const graph::Sharding& to);

  // Says that `local` stands for `whole` as that is made, and gives it its name.
  void stand_for(graph::TensorId whole, graph::TensorId local);

  // Collects the members' tensors along axis 0 and remembers it under this name.
  graph::TensorId gathered(graph::TensorId local);

  // Where the gathered statistics of these logits are remembered: kNone until somebody makes them.
  graph::TensorId& class_statistics(graph::TensorId logits, graph::TensorId labels) {
    return class_statistics_.try_emplace({logits, labels}, graph::kNone).first->second;
  }

  std::string unique_name(const std::string& name) { return names_.take(name); }

 private:
  void add_persistent(graph::TensorId id);
  void add_operator(graph::OperatorId id);
  void add_results();
  void add_total(graph::TensorId id);
  graph::Attributes talk() const;
  graph::Attributes talk(const graph::Sharding& sharding, const graph::Shape& whole) const;

  const ShardedGraph& sharded_;
  const int member_;
  graph::Graph local_;
  passes::UniqueNames names_;
  std::map<std::pair<graph::TensorId, std::string>, graph::TensorId>
      made_;  // by whole tensor and sharding
  std::map<std::pair<graph::TensorId, graph::TensorId>, graph::TensorId> class_statistics_;
};

}  // namespace millrace::parallel
