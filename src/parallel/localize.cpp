#include "parallel/localize.h"

#include <stdexcept>

#include "base/parts.h"
#include "parallel/expansions.h"
#include "parallel/local_operator.h"
#include "parallel/localizer.h"

namespace millrace::parallel {
namespace {

graph::Slice slice_of(const graph::Shape& whole, const graph::Sharding& sharding, int member,
                      int members) {
  if (sharding.kind != graph::Sharding::Kind::split) return {};
  const int64_t extent = whole.at(static_cast<size_t>(sharding.axis));
  return {sharding.axis, part_begin(extent, member, members), extent};
}

}  // namespace

Localizer::Localizer(const ShardedGraph& sharded, int member)
    : sharded_(sharded), member_(member), names_(sharded.graph) {}

graph::Graph Localizer::run() {
  for (graph::TensorId id = 0; id < whole().tensor_count(); ++id) {
    if (graph::is_persistent(whole().tensor(id).role)) add_persistent(id);
  }
  for (graph::OperatorId id : whole().order()) add_operator(id);
  add_results();
  return std::move(local_);
}

void Localizer::add_persistent(graph::TensorId id) {
  const graph::Sharding& sharding = sharded_.tensors[static_cast<size_t>(id)];
  graph::Tensor tensor = whole().tensor(id);
  tensor.slice = slice_of(tensor.type.shape, sharding, member_, members());
  tensor.type.shape = local_shape(tensor.type.shape, sharding, member_, members());
  made_[{id, graph::to_string(sharding)}] = local_.add_tensor(std::move(tensor));
}

void Localizer::add_operator(graph::OperatorId id) {
  const graph::Operator& op = whole().op(id);
  const graph::ShardingSignature& way = sharded_.signatures[static_cast<size_t>(id)];
  if (is_expanded(op, way, sharded_.synchronise_batch_norm)) return expand(*this, op, way);
  graph::Inference inference = {op, {}};
  std::vector<graph::TensorId> inputs;
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    inference.inputs.push_back(whole().tensor(op.inputs[i]).type);
    inputs.push_back(boxed(op.inputs[i], way.inputs.at(i)));
  }
  const graph::OperatorId added =
      local_.add_operator(op.type, op.name, std::move(inputs),
                          local_attributes(inference, way, member_, members()), op.phase);
  for (size_t i = 0; i < op.outputs.size(); ++i) {
    stand_for(op.outputs[i], local_.op(added).outputs.at(i));
  }
}

void Localizer::stand_for(graph::TensorId id, graph::TensorId local) {
  const graph::Sharding& sharding = sharded_.tensors[static_cast<size_t>(id)];
  const graph::Tensor& tensor = whole().tensor(id);
  if (local_.tensor(local).type.shape !=
      local_shape(tensor.type.shape, sharding, member_, members())) {
    throw std::logic_error("tensor '" + tensor.name + "' has another shape than its sharding says");
  }
  local_.tensor(local).name = tensor.name;
  made_[{id, graph::to_string(sharding)}] = local;
}

graph::TensorId Localizer::boxed(graph::TensorId id, const graph::Sharding& wanted) {
  const auto key = std::pair(id, graph::to_string(wanted));
  if (const auto found = made_.find(key); found != made_.end()) return found->second;
  const graph::Shape& shape = whole().tensor(id).type.shape;
  const graph::Sharding& made = sharded_.tensors[static_cast<size_t>(id)];
  const bool by_whole =
      made.kind == graph::Sharding::Kind::split && wanted.kind == graph::Sharding::Kind::split;
  const bool has_whole = made_.contains({id, graph::to_string(graph::broadcast())});
  const bool through_whole = by_whole || (has_whole && wanted.kind == graph::Sharding::Kind::split);
  const graph::TensorId source = boxed(id, through_whole ? graph::broadcast() : made);
  const graph::TensorId result =
      box(source, shape, through_whole ? graph::broadcast() : made, wanted);
  made_[key] = result;
  return result;
}

graph::Attributes Localizer::talk() const {
  return {{"member", int64_t{member_}}, {"members", int64_t{members()}}};
}

graph::Attributes Localizer::talk(const graph::Sharding& sharding,
                                  const graph::Shape& shape) const {
  graph::Attributes attributes = talk();
  attributes.set("axis", int64_t{sharding.axis});
  attributes.set("whole", shape.at(static_cast<size_t>(sharding.axis)));
  return attributes;
}

graph::TensorId Localizer::box(graph::TensorId local, const graph::Shape& shape,
                               const graph::Sharding& from, const graph::Sharding& to) {
  using Kind = graph::Sharding::Kind;
  const auto apply = [&](const char* type, graph::Attributes attributes) {
    const std::string name = unique_name(local_.tensor(local).name + "/" + type);
    return local_.apply(type, name, {local}, std::move(attributes));
  };
  if (from.kind == Kind::partial) {
    if (to.kind == Kind::split) return apply("reduce_scatter", talk(to, shape));
    return apply("all_reduce", talk());
  }
  if (from.kind == Kind::broadcast) {
    if (to.kind == Kind::partial) return apply("share_partial", talk());
    const graph::Slice slice = slice_of(shape, to, member_, members());
    const int64_t end = slice.begin + part_size(slice.whole, member_, members());
    return apply("slice", {{"axis", int64_t{to.axis}}, {"begin", slice.begin}, {"end", end}});
  }
  if (to.kind == Kind::broadcast) return apply("all_gather", talk(from, shape));
  const graph::Slice slice = slice_of(shape, from, member_, members());
  return apply("pad_slice",
               {{"axis", int64_t{from.axis}}, {"begin", slice.begin}, {"whole", slice.whole}});
}

graph::TensorId Localizer::gathered(graph::TensorId local) {
  graph::Shape shape = local_.tensor(local).type.shape;
  shape.at(0) *= members();
  return box(local, shape, graph::split(0), graph::broadcast());
}

void Localizer::add_results() {
  for (graph::TensorId id : whole().results()) {
    const graph::Sharding& sharding = sharded_.tensors[static_cast<size_t>(id)];
    const graph::TensorType& type = whole().tensor(id).type;
    if (type.elements() == 1 && sharding.kind != graph::Sharding::Kind::split) {
      add_total(id);
      continue;
    }
    if (sharding.kind == graph::Sharding::Kind::partial) {
      const std::string name = whole().tensor(id).name;
      local_.tensor(boxed(id, graph::partial())).name = name + ".share";
      const graph::TensorId total = boxed(id, graph::broadcast());
      local_.tensor(total).name = name;
      local_.add_result(total);
      continue;
    }
    const graph::TensorId local = boxed(id, sharding);
    local_.tensor(local).slice = slice_of(type.shape, sharding, member_, members());
    local_.add_result(local);
  }
}

// The member's share keeps the name.
void Localizer::add_total(graph::TensorId id) {
  const std::string name = whole().tensor(id).name;
  const graph::TensorId total = boxed(id, graph::broadcast());
  local_.add_result(total);
  const bool shared = sharded_.trained[static_cast<size_t>(id)];
  const graph::TensorId share = shared ? boxed(id, graph::partial()) : graph::kNone;
  local_.tensor(total).name = name + ".total";
  if (share != graph::kNone) local_.tensor(share).name = name;
}

graph::Graph localize(const ShardedGraph& sharded, int member) {
  if (member < 0 || member >= sharded.members) throw std::logic_error("no such member");
  return Localizer(sharded, member).run();
}

}  // namespace millrace::parallel
