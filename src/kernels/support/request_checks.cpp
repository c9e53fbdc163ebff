#include "kernels/support/request_checks.h"

#include <fmt/format.h>

namespace millrace::kernels {
namespace {

template <typename Accept>
bool every_tensor(const KernelRequest& request, std::string* refusal, Accept&& accept) {
  const auto check = [&](const TensorSpec& tensor, std::string_view kind, size_t number) {
    if (accept(tensor)) return true;
    *refusal = fmt::format("{} {} has layout '{}'", kind, number, tensor.layout.tag());
    return false;
  };
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    if (!check(request.inputs[i], "input", i)) return false;
  }
  for (size_t i = 0; i < request.outputs.size(); ++i) {
    if (!check(request.outputs[i], "output", i)) return false;
  }
  return true;
}

}  // namespace

bool is_plain(const KernelRequest& request, std::string* refusal) {
  return every_tensor(request, refusal,
                      [](const TensorSpec& tensor) { return tensor.layout.is_plain(); });
}

bool is_uniform(const KernelRequest& request, std::string* refusal) {
  const TensorSpec& leader = request.inputs.at(0);
  return every_tensor(request, refusal, [&](const TensorSpec& tensor) {
    const bool follows = tensor.type.shape.size() == leader.type.shape.size();
    return follows ? tensor.layout == leader.layout : tensor.layout.is_plain();
  });
}

bool is_channelwise(const KernelRequest& request, std::string* refusal) {
  if (!is_uniform(request, refusal)) return false;
  const int64_t block = request.inputs[0].layout.channel_block();
  if (block >= 1 && block <= 64) return true;
  *refusal = fmt::format("input 0 has layout '{}'", request.inputs[0].layout.tag());
  return false;
}

bool is_padded(const TensorSpec& tensor) { return tensor.physical_elements() != tensor.elements(); }

}  // namespace millrace::kernels
