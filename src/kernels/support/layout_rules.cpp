#include "kernels/support/layout_rules.h"

namespace millrace::kernels {
namespace {

LayoutWish all_like(const KernelRequest& request, size_t rank, const graph::Layout& layout) {
  LayoutWish wish;
  for (const TensorSpec& input : request.inputs) {
    wish.inputs.push_back(input.type.shape.size() == rank ? layout : graph::Layout());
  }
  for (const TensorSpec& output : request.outputs) {
    wish.outputs.push_back(output.type.shape.size() == rank ? layout : graph::Layout());
  }
  return wish;
}

}  // namespace

LayoutWish follow_input(const KernelRequest& request, size_t leader) {
  const TensorSpec& input = request.inputs.at(leader);
  return all_like(request, input.type.shape.size(), input.layout);
}

LayoutWish follow_stored(const KernelRequest& request, size_t stored) {
  const bool leads = graph::size_of(request.inputs.at(stored).type.dtype) == 2;
  return follow_input(request, leads ? stored : 0);
}

LayoutWish follow_channels(const KernelRequest& request, size_t leader) {
  const TensorSpec& input = request.inputs.at(leader);
  const bool accepted = input.layout.channel_block() > 0;
  return all_like(request, input.type.shape.size(), accepted ? input.layout : graph::Layout());
}

}  // namespace millrace::kernels
