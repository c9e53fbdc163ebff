// linear and its gradients, by oneDNN's inner product. Weights stay plain (out x in) in all
// three directions, so that the largest tensors of a model are never reordered.
#include <string_view>

#include "kernels/reference/reference.h"
#include "kernels/support/dnnl_support.h"

namespace millrace::kernels::linear {
namespace {

using dnnl::inner_product_backward_data;
using dnnl::inner_product_backward_weights;
using dnnl::inner_product_forward;

inner_product_forward::primitive_desc forward_desc(const dnnl::memory::desc& x,
                                                   const dnnl::memory::desc& w,
                                                   const dnnl::memory::desc* bias,
                                                   const dnnl::memory::desc& y, bool relu) {
  const auto kind = dnnl::prop_kind::forward_training;
  const auto description = bias != nullptr ? inner_product_forward::desc(kind, x, w, *bias, y)
                                           : inner_product_forward::desc(kind, x, w, y);
  return {description, dnnl_attributes(relu), dnnl_engine()};
}

std::unique_ptr<Kernel> create_forward(const KernelRequest& request) {
  const auto x = dnnl_desc(request.inputs[0]);
  const auto w = dnnl_desc(request.inputs[1]);
  const auto y = dnnl_desc(request.outputs[0]);
  const bool bias = request.inputs.size() > 2;
  const auto b = bias ? dnnl_desc(request.inputs[2]) : dnnl::memory::desc();
  const auto chosen =
      forward_desc(x, w, bias ? &b : nullptr, y, request.op.attributes.flag("relu"));
  std::vector<DnnlArgument> arguments = {from_input(DNNL_ARG_SRC, 0, x),
                                         from_input(DNNL_ARG_WEIGHTS, 1, w),
                                         from_output(DNNL_ARG_DST, 0, y)};
  if (bias) arguments.push_back(from_input(DNNL_ARG_BIAS, 2, b));
  return std::make_unique<DnnlKernel>(inner_product_forward(chosen), arguments,
                                      chosen.scratchpad_desc());
}

std::unique_ptr<Kernel> create_backward_data(const KernelRequest& request) {
  const auto dy = dnnl_desc(request.inputs[0]);
  const auto w = dnnl_desc(request.inputs[1]);
  const auto dx = dnnl_desc(request.outputs[0]);
  const inner_product_backward_data::primitive_desc chosen(
      inner_product_backward_data::desc(dx, w, dy), dnnl_attributes(), dnnl_engine(),
      forward_desc(dx, w, nullptr, dy, false));
  return std::make_unique<DnnlKernel>(
      inner_product_backward_data(chosen),
      std::vector{from_input(DNNL_ARG_DIFF_DST, 0, dy), from_input(DNNL_ARG_WEIGHTS, 1, w),
                  from_output(DNNL_ARG_DIFF_SRC, 0, dx)},
      chosen.scratchpad_desc());
}

std::unique_ptr<Kernel> create_backward_weights(const KernelRequest& request) {
  const auto x = dnnl_desc(request.inputs[0]);
  const auto dy = dnnl_desc(request.inputs[1]);
  const auto dw = dnnl_desc(request.outputs[0]);
  const bool bias = request.outputs.size() > 1;
  const auto db = bias ? dnnl_desc(request.outputs[1]) : dnnl::memory::desc();
  const auto description = bias ? inner_product_backward_weights::desc(x, dw, db, dy)
                                : inner_product_backward_weights::desc(x, dw, dy);
  // Gradients of weights are float32; the forward pass that oneDNN asks for has weights as rows
  // are.
  auto w = dw;
  w.data.data_type = x.data.data_type;
  const inner_product_backward_weights::primitive_desc chosen(
      description, dnnl_attributes(), dnnl_engine(), forward_desc(x, w, nullptr, dy, false));
  if (w.data.data_type == dnnl_bf16 &&
      std::string_view(chosen.impl_info_str()).starts_with("ref")) {
    throw dnnl::error(dnnl_unimplemented, "only reference code takes bf16");
  }
  std::vector<DnnlArgument> arguments = {from_input(DNNL_ARG_SRC, 0, x),
                                         from_input(DNNL_ARG_DIFF_DST, 1, dy),
                                         from_output(DNNL_ARG_DIFF_WEIGHTS, 0, dw)};
  if (bias) arguments.push_back(from_output(DNNL_ARG_DIFF_BIAS, 1, db));
  return std::make_unique<DnnlKernel>(inner_product_backward_weights(chosen), arguments,
                                      chosen.scratchpad_desc());
}

template <std::unique_ptr<Kernel> (*make)(const KernelRequest&)>
std::unique_ptr<Kernel> guarded(const KernelRequest& request, std::string* refusal) {
  try {
    return make(request);
  } catch (const dnnl::error& error) {
    *refusal = error.what();
    return nullptr;
  }
}

}  // namespace

std::vector<KernelFamily> kernels() {
  return {
      {"linear", {{"dnnl", guarded<create_forward>}, {"reference", reference_linear}}},
      {"linear_backward_data",
       {{"dnnl", guarded<create_backward_data>}, {"reference", reference_linear_backward_data}}},
      {"linear_backward_weights",
       {{"dnnl", guarded<create_backward_weights>, true},
        {"reference", reference_linear_backward_weights}}}};
}

}  // namespace millrace::kernels::linear
