#include "base/error.h"
#include "graph/operators/shapes.h"
#include "graph/operators/sharding_rules.h"

namespace millrace::graph::concat {
namespace {

size_t axis_of(const Inference& inference) {
  const int64_t axis = inference.op.attributes.integer("axis");
  const auto rank = static_cast<int64_t>(inference.shape(0).size());
  if (axis < 0 || axis >= rank) {
    fail_input("needs an axis from 0 to {} but gets {}", rank - 1, axis);
  }
  return static_cast<size_t>(axis);
}

std::vector<TensorType> infer_concat(const Inference& inference) {
  if (inference.inputs.empty()) fail_input("needs at least one part but gets none");
  const size_t axis = axis_of(inference);
  TensorType result = inference.inputs[0];
  for (size_t i = 1; i < inference.inputs.size(); ++i) {
    const Shape& part = inference.shape(i);
    Shape wanted = result.shape;
    if (part.size() == wanted.size()) wanted[axis] = part[axis];
    if (part != wanted) {
      fail_input("needs parts that differ along axis {} only but gets {} and {}", axis,
                 to_string(inference.shape(0)), to_string(part));
    }
    result.shape[axis] += part[axis];
  }
  return {result};
}

std::vector<TensorType> infer_slice(const Inference& inference) {
  expect_inputs(inference, 1);
  const size_t axis = axis_of(inference);
  const int64_t begin = inference.op.attributes.integer("begin");
  const int64_t end = inference.op.attributes.integer("end");
  TensorType result = inference.inputs[0];
  if (begin < 0 || begin >= end || end > result.shape[axis]) {
    fail_input("needs a range within 0..{} along axis {} but gets {}..{}", result.shape[axis], axis,
               begin, end);
  }
  result.shape[axis] = end - begin;
  return {result};
}

void differentiate_concat(Differentiation& d) {
  const int64_t axis = d.op().attributes.integer("axis");
  const size_t parts = d.op().inputs.size();
  int64_t begin = 0;
  for (size_t i = 0; i < parts; ++i) {
    const Shape& part = d.graph().tensor(d.input(i)).type.shape;
    const int64_t end = begin + part.at(static_cast<size_t>(axis));
    if (d.needs_gradient(i)) {
      const OperatorId added = d.apply("slice", {d.output_gradient(0)},
                                       {{"axis", axis}, {"begin", begin}, {"end", end}});
      d.set_input_gradient(i, d.result(added));
    }
    begin = end;
  }
}

void differentiate_slice(Differentiation& d) {
  if (!d.needs_gradient(0)) return;
  const int64_t axis = d.op().attributes.integer("axis");
  const Shape& whole = d.graph().tensor(d.input(0)).type.shape;
  const OperatorId added = d.apply("pad_slice", {d.output_gradient(0)},
                                   {{"axis", axis},
                                    {"begin", d.op().attributes.integer("begin")},
                                    {"whole", whole.at(static_cast<size_t>(axis))}});
  d.set_input_gradient(0, d.result(added));
}

// Along any of the first two axes but the one that is cut.
std::vector<ShardingSignature> shardings(const Inference& inference) {
  std::vector<ShardingSignature> ways;
  const size_t cut = axis_of(inference);
  for (size_t axis = 0; axis < inference.shape(0).size() && axis < 2; ++axis) {
    if (axis != cut) ways.push_back(all_split(inference, 1, static_cast<int>(axis)));
  }
  return ways;
}

}  // namespace

std::vector<OperatorDefinition> operators() {
  return {{.type = "concat",
           .infer = infer_concat,
           .differentiate = differentiate_concat,
           .repeatable = true,
           .halves = OperatorDefinition::Halves::follows,
           .joins_inputs = true,
           .shardings = shardings,
           .arithmetic = no_arithmetic},
          {.type = "slice",
           .infer = infer_slice,
           .differentiate = differentiate_slice,
           .repeatable = true,
           .halves = OperatorDefinition::Halves::follows,
           .shardings = shardings,
           .arithmetic = no_arithmetic}};
}

}  // namespace millrace::graph::concat
