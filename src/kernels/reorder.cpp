// reorder: the same values in another layout.
#include <algorithm>

#include "kernels/support/dnnl_support.h"

namespace millrace::kernels::reorder {
namespace {

std::unique_ptr<Kernel> dnnl_reorder(const KernelRequest& request, std::string* refusal) {
  const auto source = dnnl_desc(request.inputs[0]);
  const auto target = dnnl_desc(request.outputs[0]);
  try {
    const dnnl::reorder::primitive_desc description(dnnl_engine(), source, dnnl_engine(), target,
                                                    dnnl_attributes());
    return std::make_unique<DnnlKernel>(
        dnnl::reorder(description),
        std::vector{from_input(DNNL_ARG_FROM, 0, source), from_output(DNNL_ARG_TO, 0, target)},
        description.scratchpad_desc());
  } catch (const dnnl::error& error) {
    *refusal = error.what();
    return nullptr;
  }
}

class ReferenceReorder : public Kernel {
 public:
  explicit ReferenceReorder(const KernelRequest& request)
      : from_(request.inputs[0]), to_(request.outputs[0]) {}

  void run(const KernelArguments& arguments) override {
    const graph::Shape& shape = from_.type.shape;
    const int64_t element = graph::size_of(from_.type.dtype);
    std::fill_n(arguments.outputs[0], to_.bytes(), std::byte{0});
    std::vector<int64_t> index(shape.size(), 0);
    for (int64_t count = from_.elements(); count > 0; --count) {
      const int64_t source = from_.layout.offset(shape, index) * element;
      const int64_t target = to_.layout.offset(shape, index) * element;
      std::copy_n(arguments.inputs[0] + source, element, arguments.outputs[0] + target);
      for (size_t axis = shape.size(); axis-- > 0;) {
        if (++index[axis] < shape[axis]) break;
        index[axis] = 0;
      }
    }
  }

 private:
  TensorSpec from_;
  TensorSpec to_;
};

std::unique_ptr<Kernel> reference_reorder(const KernelRequest& request, std::string*) {
  return std::make_unique<ReferenceReorder>(request);
}

LayoutWish keep_layouts(const KernelRequest& request) {
  return {{request.inputs[0].layout}, {request.outputs[0].layout}};
}

}  // namespace

std::vector<KernelFamily> kernels() {
  return {{"reorder",
           {{"dnnl", dnnl_reorder, true}, {"reference", reference_reorder, true}},
           keep_layouts}};
}

}  // namespace millrace::kernels::reorder

namespace millrace::kernels {

void copy_between_layouts(const TensorSpec& from, const std::byte* source, const TensorSpec& to,
                          std::byte* target) {
  if (from.layout == to.layout) {
    std::copy_n(source, from.bytes(), target);
    return;
  }
  const graph::Operator op = {"reorder", "copy", {}, {}, {}, graph::Phase::forward};
  const KernelOptions options;
  std::byte* input = const_cast<std::byte*>(source);
  std::string refusal;
  const KernelRequest request = {op, {from}, {to}, options};
  auto kernel = reorder::dnnl_reorder(request, &refusal);
  if (kernel == nullptr || kernel->workspace_bytes() > 0) {
    kernel = reorder::reference_reorder(request, &refusal);
  }
  kernel->run({{&input, 1}, {&target, 1}, nullptr, nullptr});
}

}  // namespace millrace::kernels
