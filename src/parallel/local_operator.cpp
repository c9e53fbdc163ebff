#include "parallel/local_operator.h"

#include "base/parts.h"

namespace millrace::parallel {

graph::Attributes local_attributes(const graph::Inference& whole,
                                   const graph::ShardingSignature& way, int member, int members) {
  graph::Attributes attributes = whole.op.attributes;
  if (way.inputs.empty() || way.inputs[0].kind != graph::Sharding::Kind::split) return attributes;
  const int axis = way.inputs[0].axis;
  const int64_t extent = whole.shape(0).at(static_cast<size_t>(axis));
  const int64_t begin = part_begin(extent, member, members);
  const std::string& type = whole.op.type;
  if (type == "softmax_cross_entropy" && axis == 0 && !attributes.has("samples")) {
    attributes.set("samples", extent);
  }
  if (type == "convolution" && axis == 1 && attributes.integer("groups") > 1) {
    attributes.set("groups", part_size(extent, member, members));
  }
  if (type == "dropout" && axis == 0) attributes.set("sample_begin", begin);
  if (type == "dropout" && axis == 1) {
    attributes.set("channel_begin", begin);
    attributes.set("channels", extent);
  }
  return attributes;
}

bool is_expanded(const graph::Operator& op, const graph::ShardingSignature& way,
                 bool synchronise_batch_norm) {
  if (way.inputs.empty()) return false;
  if (op.type.starts_with("margin_head")) return true;
  const graph::Sharding& first = way.inputs[0];
  if (op.type == "softmax_cross_entropy" || op.type == "top_k") return first == graph::split(1);
  return op.type == "batch_norm" && first == graph::split(0) && synchronise_batch_norm &&
         !op.attributes.flag("inference");
}

}  // namespace millrace::parallel
