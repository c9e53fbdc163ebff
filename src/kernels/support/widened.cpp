#include "kernels/support/widened.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/parallel.h"
#include "graph/operator_definition.h"
#include "kernels/support/conversion.h"
#include "kernels/support/vectorize.h"

namespace millrace::kernels {
namespace {

constexpr uint64_t kAlignment = 64;

bool is_half(const TensorSpec& tensor) {
  return tensor.type.dtype == graph::DataType::f16 || tensor.type.dtype == graph::DataType::bf16;
}

// A tensor and where one part's float32 numbers lie in the workspace.
struct Copy {
  size_t index;
  graph::DataType type;
  int64_t count;
  uint64_t offset;
};

MILLRACE_VECTORIZED void add_range(const float* terms, float* sums, int64_t count) {
  for (int64_t i = 0; i < count; ++i) sums[i] += terms[i];
}

void add(const float* terms, float* sums, int64_t count) {
  parallel_ranges(count, kElementwiseGrain, [&](int, int64_t begin, int64_t end) {
    add_range(terms + begin, sums + begin, end - begin);
  });
}

class Widened : public Kernel {
 public:
  // `part` is what `inner` was made for.
  Widened(std::unique_ptr<Kernel> inner, const KernelRequest& request, const KernelRequest& part,
          int64_t parts)
      : inner_(std::move(inner)),
        parts_(parts),
        input_pointers_(request.inputs.size()),
        output_pointers_(request.outputs.size()) {
    bytes_ = aligned(inner_->workspace_bytes());
    for (size_t i = 0; i < request.inputs.size(); ++i) {
      if (is_half(request.inputs[i])) inputs_.push_back(copy_of(i, request.inputs, part.inputs));
    }
    for (size_t i = 0; i < request.outputs.size(); ++i) {
      if (is_half(request.outputs[i])) {
        outputs_.push_back(copy_of(i, request.outputs, part.outputs));
      } else if (parts > 1) {
        sums_.push_back(copy_of(i, request.outputs, part.outputs));
      }
    }
  }

  uint64_t workspace_bytes() const override { return bytes_; }

  void run(const KernelArguments& arguments) override {
    std::copy(arguments.inputs.begin(), arguments.inputs.end(), input_pointers_.begin());
    std::copy(arguments.outputs.begin(), arguments.outputs.end(), output_pointers_.begin());
    for (const Copy& copy : inputs_) {
      input_pointers_[copy.index] = arguments.workspace + copy.offset;
    }
    for (const Copy& copy : outputs_) {
      output_pointers_[copy.index] = arguments.workspace + copy.offset;
    }
    KernelArguments inner = arguments;
    inner.inputs = input_pointers_;
    inner.outputs = output_pointers_;
    for (int64_t part = 0; part < parts_; ++part) run_part(part, arguments, inner);
  }

 private:
  static uint64_t aligned(uint64_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }

  Copy copy_of(size_t index, const std::vector<TensorSpec>& whole,
               const std::vector<TensorSpec>& part) {
    const int64_t count = part[index].physical_elements();
    const uint64_t offset = bytes_;
    bytes_ += aligned(static_cast<uint64_t>(count) * sizeof(float));
    return {index, whole[index].type.dtype, count, offset};
  }

  void run_part(int64_t part, const KernelArguments& arguments, const KernelArguments& inner) {
    const auto stored = [part](std::byte* tensor, const Copy& copy) {
      return tensor + part * copy.count * graph::size_of(copy.type);
    };
    for (const Copy& copy : inputs_) {
      widen(copy.type, stored(arguments.inputs[copy.index], copy), copy.count,
            inner.input<float>(copy.index));
    }
    // The first part's sums are where they belong.
    for (const Copy& sum : sums_) {
      output_pointers_[sum.index] =
          part == 0 ? arguments.outputs[sum.index] : arguments.workspace + sum.offset;
    }
    inner_->run(inner);
    for (const Copy& copy : outputs_) {
      narrow(copy.type, inner.output<float>(copy.index), copy.count,
             stored(arguments.outputs[copy.index], copy));
    }
    if (part == 0) return;
    for (const Copy& sum : sums_) {
      add(inner.output<float>(sum.index), arguments.output<float>(sum.index), sum.count);
    }
  }

  std::unique_ptr<Kernel> inner_;
  int64_t parts_;
  std::vector<std::byte*> input_pointers_;
  std::vector<std::byte*> output_pointers_;
  std::vector<Copy> inputs_;
  std::vector<Copy> outputs_;
  std::vector<Copy> sums_;
  uint64_t bytes_ = 0;
};

// Whether samples follow each other, so that a part of the batch is a range of memory.
bool has_outer_batch(const TensorSpec& tensor) {
  const graph::Layout& layout = tensor.layout;
  if (layout.is_plain()) return true;
  const auto& blocks = layout.inner_blocks();
  return layout.outer_order().front() == 0 &&
         std::none_of(blocks.begin(), blocks.end(),
                      [](const graph::Layout::Block& block) { return block.axis == 0; });
}

bool can_be_divided(const KernelRequest& request, int64_t parts) {
  const auto fits = [parts](const TensorSpec& tensor) {
    return !is_half(tensor) || (tensor.type.shape.at(0) % parts == 0 && has_outer_batch(tensor));
  };
  return std::all_of(request.inputs.begin(), request.inputs.end(), fits) &&
         std::all_of(request.outputs.begin(), request.outputs.end(), fits);
}

}  // namespace

bool has_halves(const KernelRequest& request) {
  return std::any_of(request.inputs.begin(), request.inputs.end(), is_half) ||
         std::any_of(request.outputs.begin(), request.outputs.end(), is_half);
}

KernelRequest widened_request(const KernelRequest& request, int64_t parts) {
  KernelRequest wide = request;
  for (auto* tensors : {&wide.inputs, &wide.outputs}) {
    for (TensorSpec& tensor : *tensors) {
      if (!is_half(tensor)) continue;
      tensor.type.dtype = graph::DataType::f32;
      if (parts > 1) tensor.type.shape.at(0) /= parts;
    }
  }
  return wide;
}

std::unique_ptr<Kernel> make_widened(const KernelImplementation& implementation,
                                     const KernelRequest& request, std::string* refusal,
                                     int64_t parts) {
  for (const int mutated : graph::definition_of(request.op.type).mutated_inputs) {
    const auto i = static_cast<size_t>(mutated);
    if (i >= request.inputs.size() || !is_half(request.inputs[i])) continue;
    *refusal = fmt::format("input {} is written and has 16 bits", i);
    return nullptr;
  }
  if (parts > 1 && !can_be_divided(request, parts)) {
    *refusal = fmt::format("a batch in this layout has no {} equal parts", parts);
    return nullptr;
  }
  const KernelRequest part = widened_request(request, parts);
  auto kernel = implementation.create(part, refusal);
  if (kernel == nullptr) return nullptr;
  return std::make_unique<Widened>(std::move(kernel), request, part, parts);
}

}  // namespace millrace::kernels
