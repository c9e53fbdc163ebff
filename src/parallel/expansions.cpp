#include "parallel/expansions.h"

#include <stdexcept>

#include "base/parts.h"

namespace millrace::parallel {
namespace {

// Adds where the member's classes lie among all.
graph::Attributes class_range(const Localizer& localizer, const graph::Operator& op,
                              graph::Attributes attributes = {}) {
  const int64_t classes = localizer.whole().tensor(op.inputs[0]).type.shape.at(1);
  attributes.set("class_begin", part_begin(classes, localizer.member(), localizer.members()));
  attributes.set("classes", classes);
  attributes.set("members", int64_t{localizer.members()});
  return attributes;
}

// Every member's statistics of its classes. Loss and accuracies of the same logits share them.
graph::TensorId class_statistics(Localizer& localizer, const graph::Operator& op,
                                 graph::TensorId logits, graph::TensorId labels) {
  graph::TensorId& all = localizer.class_statistics(logits, labels);
  if (all != graph::kNone) return all;
  const graph::TensorId own =
      localizer.local().apply("softmax_statistics", localizer.unique_name(op.name + "/statistics"),
                              {logits, labels}, class_range(localizer, op));
  return all = localizer.gathered(own);
}

void expand_loss(Localizer& localizer, const graph::Operator& op,
                 const graph::ShardingSignature& way) {
  const graph::TensorId logits = localizer.boxed(op.inputs[0], way.inputs[0]);
  const graph::TensorId labels = localizer.boxed(op.inputs[1], way.inputs[1]);
  const graph::TensorId statistics = class_statistics(localizer, op, logits, labels);
  const graph::TensorId loss =
      localizer.local().apply("split_softmax_loss", op.name, {logits, labels, statistics},
                              class_range(localizer, op, op.attributes));
  localizer.stand_for(op.outputs[0], loss);
}

void expand_top_k(Localizer& localizer, const graph::Operator& op,
                  const graph::ShardingSignature& way) {
  const graph::TensorId logits = localizer.boxed(op.inputs[0], way.inputs[0]);
  const graph::TensorId labels = localizer.boxed(op.inputs[1], way.inputs[1]);
  const graph::TensorId statistics = class_statistics(localizer, op, logits, labels);
  graph::Graph& local = localizer.local();
  const graph::TensorId rank =
      local.apply("split_rank", localizer.unique_name(op.name + "/rank"),
                  {logits, labels, statistics}, class_range(localizer, op));
  const graph::TensorId total =
      localizer.box(rank, local.tensor(rank).type.shape, graph::partial(), graph::broadcast());
  localizer.stand_for(op.outputs[0], local.apply("rank_hits", op.name, {total},
                                                 {{"k", op.attributes.integer("k")}}));
}

// Whether the members have different classes of the head.
bool is_divided(const Localizer& localizer, const graph::Attributes& head) {
  return head.flag("divided") && head.integer("classes") >= localizer.members();
}

graph::Attributes head_attributes(const Localizer& localizer, const graph::Operator& op) {
  graph::Attributes attributes = op.attributes;
  if (is_divided(localizer, attributes)) {
    const int64_t classes = attributes.integer("classes");
    attributes.set("class_begin", part_begin(classes, localizer.member(), localizer.members()));
    attributes.set("local_classes", part_size(classes, localizer.member(), localizer.members()));
  } else {
    attributes.set("embedding_share", 1.0 / localizer.members());
  }
  return attributes;
}

void expand_head(Localizer& localizer, const graph::Operator& op,
                 const graph::ShardingSignature& way) {
  std::vector<graph::TensorId> inputs;
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    inputs.push_back(localizer.boxed(op.inputs[i], way.inputs[i]));
  }
  graph::Graph& local = localizer.local();
  graph::Attributes attributes = op.attributes;
  const bool is_loss = graph::definition_of(op).averages_samples;
  if (is_loss) {
    const graph::OperatorId producer = local.tensor(inputs[0]).producer;
    if (is_divided(localizer, local.op(producer).attributes)) {
      inputs[1] = localizer.gathered(inputs[0]);
    }
    attributes.set("members", int64_t{localizer.members()});
  } else {
    attributes = head_attributes(localizer, op);
  }
  const graph::OperatorId added =
      local.add_operator(op.type, op.name, std::move(inputs), std::move(attributes));
  // Kept products are read by the head's own backward operator alone.
  localizer.stand_for(op.outputs[0], local.op(added).outputs[0]);
  if (is_loss) localizer.stand_for(op.outputs[2], local.op(added).outputs[2]);
}

void expand_batch_norm(Localizer& localizer, const graph::Operator& op,
                       const graph::ShardingSignature& way) {
  graph::Graph& local = localizer.local();
  std::vector<graph::TensorId> inputs;
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    inputs.push_back(localizer.boxed(op.inputs[i], way.inputs[i]));
  }
  const graph::Shape& whole = localizer.whole().tensor(op.inputs[0]).type.shape;
  graph::Attributes::Integers counts;
  for (int member = 0; member < localizer.members(); ++member) {
    counts.push_back(part_size(whole[0], member, localizer.members()) *
                     (graph::elements_of(whole) / (whole[0] * whole[1])));
  }
  const graph::TensorId own = local.apply(
      "batch_norm_statistics", localizer.unique_name(op.name + "/statistics"), {inputs[0]});
  const graph::TensorId statistics = localizer.gathered(own);
  inputs.insert(inputs.begin() + 5, statistics);
  graph::Attributes attributes = op.attributes;
  attributes.set("counts", std::move(counts));
  attributes.set("member", int64_t{localizer.member()});
  attributes.set("members", int64_t{localizer.members()});
  const graph::OperatorId added = local.add_operator("batch_norm_synchronised", op.name,
                                                     std::move(inputs), std::move(attributes));
  for (size_t i = 0; i < op.outputs.size(); ++i) {
    localizer.stand_for(op.outputs[i], local.op(added).outputs.at(i));
  }
}

}  // namespace

void expand(Localizer& localizer, const graph::Operator& op, const graph::ShardingSignature& way) {
  const graph::OperatorDefinition& definition = graph::definition_of(op);
  if (definition.is_head) return expand_head(localizer, op, way);
  switch (definition.expansion) {
    case graph::OperatorDefinition::Expansion::none:
      throw std::logic_error("operator '" + op.name + "' has no expansion");
    case graph::OperatorDefinition::Expansion::loss_of_classes:
      return expand_loss(localizer, op, way);
    case graph::OperatorDefinition::Expansion::rank_in_classes:
      return expand_top_k(localizer, op, way);
    case graph::OperatorDefinition::Expansion::shared_statistics:
      return expand_batch_norm(localizer, op, way);
  }
}

}  // namespace millrace::parallel
