#include "kernels/support/widened.h"

#include <fmt/format.h>

#include <algorithm>

#include "graph/operator_definition.h"
#include "kernels/support/conversion.h"

namespace millrace {
namespace {

constexpr uint64_t kAlignment = 64;

bool is_half(const TensorSpec& tensor) {
  return tensor.type.dtype == DataType::f16 || tensor.type.dtype == DataType::bf16;
}

// A tensor of 16 bits and where its float32 copy lies in the workspace.
struct Copy {
  size_t index;
  DataType type;
  int64_t count;
  uint64_t offset;
};

class Widened : public Kernel {
 public:
  Widened(std::unique_ptr<Kernel> inner, const KernelRequest& request)
      : inner_(std::move(inner)),
        input_pointers_(request.inputs.size()),
        output_pointers_(request.outputs.size()) {
    bytes_ = aligned(inner_->workspace_bytes());
    inputs_ = copies_of(request.inputs);
    outputs_ = copies_of(request.outputs);
  }

  uint64_t workspace_bytes() const override { return bytes_; }

  void run(const KernelArguments& arguments) override {
    std::copy(arguments.inputs.begin(), arguments.inputs.end(), input_pointers_.begin());
    std::copy(arguments.outputs.begin(), arguments.outputs.end(), output_pointers_.begin());
    for (const Copy& copy : inputs_) {
      input_pointers_[copy.index] = arguments.workspace + copy.offset;
      widen(copy.type, arguments.inputs[copy.index], copy.count,
            reinterpret_cast<float*>(input_pointers_[copy.index]));
    }
    for (const Copy& copy : outputs_) {
      output_pointers_[copy.index] = arguments.workspace + copy.offset;
    }
    KernelArguments inner = arguments;
    inner.inputs = input_pointers_;
    inner.outputs = output_pointers_;
    inner_->run(inner);
    for (const Copy& copy : outputs_) {
      narrow(copy.type, reinterpret_cast<const float*>(output_pointers_[copy.index]), copy.count,
             arguments.outputs[copy.index]);
    }
  }

 private:
  static uint64_t aligned(uint64_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }

  std::vector<Copy> copies_of(const std::vector<TensorSpec>& tensors) {
    std::vector<Copy> copies;
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (!is_half(tensors[i])) continue;
      const int64_t count = tensors[i].physical_elements();
      copies.push_back({i, tensors[i].type.dtype, count, bytes_});
      bytes_ += aligned(static_cast<uint64_t>(count) * sizeof(float));
    }
    return copies;
  }

  std::unique_ptr<Kernel> inner_;
  std::vector<std::byte*> input_pointers_;
  std::vector<std::byte*> output_pointers_;
  std::vector<Copy> inputs_;
  std::vector<Copy> outputs_;
  uint64_t bytes_ = 0;
};

}  // namespace

bool has_halves(const KernelRequest& request) {
  return std::any_of(request.inputs.begin(), request.inputs.end(), is_half) ||
         std::any_of(request.outputs.begin(), request.outputs.end(), is_half);
}

KernelRequest widened_request(const KernelRequest& request) {
  KernelRequest wide = request;
  for (auto* tensors : {&wide.inputs, &wide.outputs}) {
    for (TensorSpec& tensor : *tensors) {
      if (is_half(tensor)) tensor.type.dtype = DataType::f32;
    }
  }
  return wide;
}

std::unique_ptr<Kernel> make_widened(const KernelImplementation& implementation,
                                     const KernelRequest& request, std::string* refusal) {
  for (const int mutated : definition_of(request.op.type).mutated_inputs) {
    const auto i = static_cast<size_t>(mutated);
    if (i >= request.inputs.size() || !is_half(request.inputs[i])) continue;
    *refusal = fmt::format("input {} is written and has 16 bits", i);
    return nullptr;
  }
  auto kernel = implementation.create(widened_request(request), refusal);
  if (kernel == nullptr) return nullptr;
  return std::make_unique<Widened>(std::move(kernel), request);
}

}  // namespace millrace
