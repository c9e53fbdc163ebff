// Average pooling by oneDNN: windows, and the whole image as one window. Adaptive pooling, whose
// windows differ in size, has the plain loops of the reference.
#include "kernels/reference/reference.h"
#include "kernels/support/dnnl_support.h"
#include "kernels/support/layout_rules.h"

namespace millrace::kernels::average_pool {
namespace {

struct Windows {
  graph::Shape kernel;
  graph::Shape stride;
  graph::Shape padding;
  dnnl::algorithm algorithm;
};

Windows windows_of(const graph::Operator& op, const graph::Shape& x) {
  if (op.type.starts_with("global")) {
    const graph::Shape whole = {x[2], x[3]};
    return {whole, whole, {0, 0}, dnnl::algorithm::pooling_avg_exclude_padding};
  }
  return {op.attributes.integers("kernel"), op.attributes.integers("stride"),
          op.attributes.integers("padding"),
          op.attributes.flag("count_include_pad") ? dnnl::algorithm::pooling_avg_include_padding
                                                  : dnnl::algorithm::pooling_avg_exclude_padding};
}

dnnl::pooling_forward::primitive_desc forward_desc(const Windows& windows,
                                                   const dnnl::memory::desc& x,
                                                   const dnnl::memory::desc& y) {
  const dnnl::pooling_forward::desc description(dnnl::prop_kind::forward_training,
                                                windows.algorithm, x, y, windows.stride,
                                                windows.kernel, windows.padding, windows.padding);
  return {description, dnnl_attributes(), dnnl_engine()};
}

std::unique_ptr<Kernel> create_forward(const KernelRequest& request, std::string* refusal) {
  const auto x = dnnl_desc(request.inputs[0]);
  const auto y = dnnl_desc(request.outputs[0]);
  try {
    const auto chosen = forward_desc(windows_of(request.op, request.inputs[0].type.shape), x, y);
    return std::make_unique<DnnlKernel>(
        dnnl::pooling_forward(chosen),
        std::vector{from_input(DNNL_ARG_SRC, 0, x), from_output(DNNL_ARG_DST, 0, y)},
        chosen.scratchpad_desc());
  } catch (const dnnl::error& error) {
    *refusal = error.what();
    return nullptr;
  }
}

std::unique_ptr<Kernel> create_backward(const KernelRequest& request, std::string* refusal) {
  const auto dy = dnnl_desc(request.inputs[0]);
  const auto dx = dnnl_desc(request.outputs[0]);
  const Windows windows = windows_of(request.op, request.outputs[0].type.shape);
  try {
    const dnnl::pooling_backward::desc description(windows.algorithm, dx, dy, windows.stride,
                                                   windows.kernel, windows.padding,
                                                   windows.padding);
    const dnnl::pooling_backward::primitive_desc chosen(
        description, dnnl_attributes(), dnnl_engine(), forward_desc(windows, dx, dy));
    return std::make_unique<DnnlKernel>(
        dnnl::pooling_backward(chosen),
        std::vector{from_input(DNNL_ARG_DIFF_DST, 0, dy), from_output(DNNL_ARG_DIFF_SRC, 0, dx)},
        chosen.scratchpad_desc());
  } catch (const dnnl::error& error) {
    *refusal = error.what();
    return nullptr;
  }
}

LayoutWish follow_image(const KernelRequest& request) { return follow_channels(request, 0); }

}  // namespace

std::vector<KernelFamily> kernels() {
  return {{"average_pool",
           {{"dnnl", create_forward, true}, {"reference", reference_average_pool}},
           follow_image},
          {"average_pool_backward",
           {{"dnnl", create_backward, true}, {"reference", reference_average_pool_backward}},
           follow_image},
          {"global_average_pool",
           {{"dnnl", create_forward, true}, {"reference", reference_global_average_pool}},
           follow_image},
          {"global_average_pool_backward",
           {{"dnnl", create_backward, true}, {"reference", reference_global_average_pool_backward}},
           follow_image},
          {"adaptive_average_pool", {{"reference", reference_adaptive_average_pool}}},
          {"adaptive_average_pool_backward",
           {{"reference", reference_adaptive_average_pool_backward}}}};
}

}  // namespace millrace::kernels::average_pool
