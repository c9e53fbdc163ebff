#include "kernels/support/layout_rules.h"

namespace millrace {
namespace {

LayoutWish all_like(const KernelRequest& request, size_t rank, const Layout& layout) {
  LayoutWish wish;
  for (const TensorSpec& input : request.inputs) {
    wish.inputs.push_back(input.type.shape.size() == rank ? layout : Layout());
  }
  for (const TensorSpec& output : request.outputs) {
    wish.outputs.push_back(output.type.shape.size() == rank ? layout : Layout());
  }
  return wish;
}

}  // namespace

LayoutWish follow_input(const KernelRequest& request, size_t leader) {
  const TensorSpec& input = request.inputs.at(leader);
  return all_like(request, input.type.shape.size(), input.layout);
}

LayoutWish follow_stored(const KernelRequest& request, size_t stored) {
  const bool leads = size_of(request.inputs.at(stored).type.dtype) == 2;
  return follow_input(request, leads ? stored : 0);
}

LayoutWish follow_channels(const KernelRequest& request, size_t leader) {
  const TensorSpec& input = request.inputs.at(leader);
  const bool accepted = input.layout.channel_block() > 0;
  return all_like(request, input.type.shape.size(), accepted ? input.layout : Layout());
}

}  // namespace millrace
