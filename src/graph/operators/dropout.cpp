#include "base/error.h"
#include "graph/operators/shapes.h"
#include "graph/operators/sharding_rules.h"

namespace millrace::graph::dropout {
namespace {

std::vector<TensorType> infer(const Inference& inference) {
  expect_inputs(inference, 1);
  const double rate = inference.op.attributes.number("rate");
  if (!(rate >= 0 && rate < 1)) fail_input("needs a rate from 0 to below 1 but gets {}", rate);
  return {inference.inputs[0]};
}

void differentiate(Differentiation& d) {
  if (!d.needs_gradient(0)) return;
  const Attributes attributes = d.op().attributes;
  const OperatorId added = d.apply("dropout_backward", {d.output_gradient(0)}, attributes);
  d.set_input_gradient(0, d.result(added));
}

// It drops what it would drop of the whole.
void take_part(Attributes& attributes, const InputPart& part) {
  if (part.axis == 0) attributes.set("sample_begin", part.begin);
  if (part.axis != 1) return;
  attributes.set("channel_begin", part.begin);
  attributes.set("channels", part.whole);
}

}  // namespace

std::vector<OperatorDefinition> operators() {
  return {{.type = "dropout",
           .infer = infer,
           .differentiate = differentiate,
           .only_trains = true,
           .in_place = {{0, 0}},
           .cheap = true,
           .halves = OperatorDefinition::Halves::follows,
           .shardings = shard_by_sample_or_channel,
           .take_part = take_part},
          {.type = "dropout_backward",
           .infer = infer,
           .gradient = OperatorDefinition::Gradient::of_inputs,
           .in_place = {{0, 0}}}};
}

}  // namespace millrace::graph::dropout
