// Boxing: operators that turn a tensor lying one way on the devices into one lying another way.
// The gradient of a split tensor is split, of a broadcast one partial, of a partial one broadcast,
// so each is the gradient of another: all_reduce and share_partial of themselves, all_gather and
// reduce_scatter of each other, slice and pad_slice of each other.
//
// Attributes of those that talk: member and members; axis, and `whole`, the extent of the whole
// tensor along it. Parts are divided as part_begin says.
#include "base/error.h"
#include "base/parts.h"
#include "graph/operators/shapes.h"

namespace millrace::graph::boxing {
namespace {

struct Division {
  size_t axis;
  int64_t whole;
  int64_t begin;
  int64_t size;
};

void expect_member(const Attributes& attributes) {
  const int64_t members = attributes.integer("members");
  const int64_t member = attributes.integer("member");
  if (members < 1 || member < 0 || member >= members) {
    fail_input("needs a member below {} members but gets {}", members, member);
  }
}

size_t axis_of(const Inference& inference) {
  const int64_t axis = inference.op.attributes.integer("axis");
  const auto rank = static_cast<int64_t>(inference.shape(0).size());
  if (axis < 0 || axis >= rank) fail_input("needs an axis below {} but gets {}", rank, axis);
  return static_cast<size_t>(axis);
}

Division division_of(const Inference& inference) {
  const Attributes& attributes = inference.op.attributes;
  expect_member(attributes);
  const auto members = static_cast<int>(attributes.integer("members"));
  const auto member = static_cast<int>(attributes.integer("member"));
  const int64_t whole = attributes.integer("whole");
  if (whole < members) fail_input("needs at least {} rows for {} members", members, members);
  return {axis_of(inference), whole, part_begin(whole, member, members),
          part_size(whole, member, members)};
}

void expect_extent(const Inference& inference, size_t axis, int64_t wanted) {
  const int64_t extent = inference.shape(0)[axis];
  if (extent != wanted) {
    fail_input("needs {} rows along axis {} but gets {}", wanted, axis, extent);
  }
}

std::vector<TensorType> with_extent(const Inference& inference, size_t axis, int64_t extent) {
  TensorType type = inference.inputs[0];
  type.shape[axis] = extent;
  return {type};
}

std::vector<TensorType> infer_same(const Inference& inference) {
  expect_inputs(inference, 1);
  expect_member(inference.op.attributes);
  return {inference.inputs[0]};
}

std::vector<TensorType> infer_all_gather(const Inference& inference) {
  expect_inputs(inference, 1);
  const Division division = division_of(inference);
  expect_extent(inference, division.axis, division.size);
  return with_extent(inference, division.axis, division.whole);
}

std::vector<TensorType> infer_reduce_scatter(const Inference& inference) {
  expect_inputs(inference, 1);
  const Division division = division_of(inference);
  expect_extent(inference, division.axis, division.whole);
  return with_extent(inference, division.axis, division.size);
}

std::vector<TensorType> infer_pad_slice(const Inference& inference) {
  expect_inputs(inference, 1);
  const size_t axis = axis_of(inference);
  const int64_t begin = inference.op.attributes.integer("begin");
  const int64_t whole = inference.op.attributes.integer("whole");
  const int64_t extent = inference.shape(0)[axis];
  if (begin < 0 || begin > whole - extent) {
    fail_input("needs a place for {} rows within {} but gets {}", extent, whole, begin);
  }
  return with_extent(inference, axis, whole);
}

template <const char* const& type>
void differentiate_by(Differentiation& d) {
  if (!d.needs_gradient(0)) return;
  const Attributes attributes = d.op().attributes;
  d.set_input_gradient(0, d.result(d.apply(type, {d.output_gradient(0)}, attributes)));
}

void differentiate_pad_slice(Differentiation& d) {
  if (!d.needs_gradient(0)) return;
  const int64_t axis = d.op().attributes.integer("axis");
  const int64_t begin = d.op().attributes.integer("begin");
  const Shape& part = d.graph().tensor(d.input(0)).type.shape;
  const int64_t end = begin + part.at(static_cast<size_t>(axis));
  const OperatorId added =
      d.apply("slice", {d.output_gradient(0)}, {{"axis", axis}, {"begin", begin}, {"end", end}});
  d.set_input_gradient(0, d.result(added));
}

constexpr const char* kAllReduce = "all_reduce";
constexpr const char* kAllGather = "all_gather";
constexpr const char* kReduceScatter = "reduce_scatter";
constexpr const char* kSharePartial = "share_partial";

}  // namespace

std::vector<OperatorDefinition> operators() {
  return {{.type = kAllReduce,
           .infer = infer_same,
           .differentiate = differentiate_by<kAllReduce>,
           .in_place = {{0, 0}},
           .exchange = OperatorDefinition::Exchange::sum},
          {.type = kAllGather,
           .infer = infer_all_gather,
           .differentiate = differentiate_by<kReduceScatter>,
           .exchange = OperatorDefinition::Exchange::gather,
           .arithmetic = no_arithmetic},
          {.type = kReduceScatter,
           .infer = infer_reduce_scatter,
           .differentiate = differentiate_by<kAllGather>,
           .exchange = OperatorDefinition::Exchange::scatter},
          {.type = kSharePartial,
           .infer = infer_same,
           .differentiate = differentiate_by<kSharePartial>,
           .in_place = {{0, 0}},
           .arithmetic = no_arithmetic},
          {.type = "pad_slice",
           .infer = infer_pad_slice,
           .differentiate = differentiate_pad_slice,
           .arithmetic = no_arithmetic}};
}

}  // namespace millrace::graph::boxing
