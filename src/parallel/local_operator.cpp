#include "parallel/local_operator.h"

#include "base/parts.h"

namespace millrace::parallel {

graph::Attributes local_attributes(const graph::Inference& whole,
                                   const graph::ShardingSignature& way, int member, int members) {
  graph::Attributes attributes = whole.op.attributes;
  if (way.inputs.empty() || way.inputs[0].kind != graph::Sharding::Kind::split) return attributes;
  const auto take_part = graph::definition_of(whole.op).take_part;
  if (take_part == nullptr) return attributes;
  const int axis = way.inputs[0].axis;
  const int64_t extent = whole.shape(0).at(static_cast<size_t>(axis));
  const int64_t begin = part_begin(extent, member, members);
  take_part(attributes, {axis, begin, part_size(extent, member, members), extent});
  return attributes;
}

bool is_expanded(const graph::Operator& op, const graph::ShardingSignature& way,
                 bool synchronise_batch_norm) {
  if (way.inputs.empty()) return false;
  const graph::OperatorDefinition& definition = graph::definition_of(op);
  if (definition.is_head) return true;
  switch (definition.expansion) {
    case graph::OperatorDefinition::Expansion::none:
      return false;
    case graph::OperatorDefinition::Expansion::loss_of_classes:
    case graph::OperatorDefinition::Expansion::rank_in_classes:
      return way.inputs[0] == graph::split(1);
    case graph::OperatorDefinition::Expansion::shared_statistics:
      return way.inputs[0] == graph::split(0) && synchronise_batch_norm &&
             !op.attributes.flag("inference");
  }
  return false;
}

}  // namespace millrace::parallel
