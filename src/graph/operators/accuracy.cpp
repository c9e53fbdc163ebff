#include "base/error.h"
#include "graph/operators/shapes.h"
#include "graph/operators/sharding_rules.h"

namespace millrace::graph::accuracy {
namespace {

std::vector<TensorType> infer_top_k(const Inference& inference) {
  expect_inputs(inference, 2);
  expect_matrix(inference, 0);
  expect_labels(inference, 1, inference.shape(0)[0]);
  const int64_t k = inference.op.attributes.integer("k");
  const int64_t classes = inference.shape(0)[1];
  if (k < 1 || k > classes) fail_input("needs k between 1 and {} classes but gets {}", classes, k);
  return {{{1}, DataType::f32}};
}

std::vector<ShardingSignature> shardings(const Inference&) {
  return {{{split(0), split(0)}, {partial()}}, {{split(1), broadcast()}, {broadcast()}}};
}

}  // namespace

std::vector<OperatorDefinition> operators() {
  return {{.type = "top_k",
           .infer = infer_top_k,
           .is_metric = true,
           .shardings = shardings,
           .expansion = OperatorDefinition::Expansion::rank_in_classes,
           .arithmetic = per_element<1>}};
}

}  // namespace millrace::graph::accuracy
