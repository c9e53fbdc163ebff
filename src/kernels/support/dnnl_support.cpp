#include "kernels/support/dnnl_support.h"

#include <algorithm>
#include <numeric>

namespace millrace::kernels {
namespace {

dnnl::memory unbound(const dnnl::memory::desc& desc) {
  return {desc, dnnl_engine(), DNNL_MEMORY_NONE};
}

}  // namespace

const dnnl::engine& dnnl_engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl::memory::data_type to_dnnl(graph::DataType type) {
  switch (type) {
    case graph::DataType::f32:
      return dnnl::memory::data_type::f32;
    case graph::DataType::f16:
      return dnnl::memory::data_type::f16;
    case graph::DataType::bf16:
      return dnnl::memory::data_type::bf16;
    case graph::DataType::s32:
      return dnnl::memory::data_type::s32;
    case graph::DataType::u8:
      return dnnl::memory::data_type::u8;
  }
  return dnnl::memory::data_type::undef;
}

dnnl::memory::desc dnnl_plain(const graph::Shape& shape, graph::DataType type) {
  dnnl::memory::dims strides(shape.size());
  int64_t stride = 1;
  for (size_t axis = shape.size(); axis-- > 0;) {
    strides[axis] = stride;
    stride *= shape[axis];
  }
  return {shape, to_dnnl(type), strides};
}

dnnl::memory::desc dnnl_desc(const TensorSpec& spec) {
  const graph::Shape& shape = spec.type.shape;
  if (spec.layout.is_plain()) return dnnl_plain(shape, spec.type.dtype);

  dnnl_memory_desc_t raw = {};
  raw.ndims = static_cast<int>(shape.size());
  raw.data_type = static_cast<dnnl_data_type_t>(to_dnnl(spec.type.dtype));
  raw.format_kind = dnnl_blocked;
  std::vector<int64_t> multiple(shape.size(), 1);
  auto& blocking = raw.format_desc.blocking;
  int64_t stride = 1;
  for (const graph::Layout::Block& block : spec.layout.inner_blocks()) {
    blocking.inner_blks[blocking.inner_nblks] = block.size;
    blocking.inner_idxs[blocking.inner_nblks] = block.axis;
    ++blocking.inner_nblks;
    multiple[static_cast<size_t>(block.axis)] *= block.size;
    stride *= block.size;
  }
  const auto& order = spec.layout.outer_order();
  for (auto axis = order.rbegin(); axis != order.rend(); ++axis) {
    const auto a = static_cast<size_t>(*axis);
    const int64_t blocks = (shape[a] + multiple[a] - 1) / multiple[a];
    raw.dims[a] = shape[a];
    raw.padded_dims[a] = blocks * multiple[a];
    blocking.strides[a] = stride;
    stride *= blocks;
  }
  return dnnl::memory::desc(raw);
}

dnnl::memory::desc dnnl_any(const graph::TensorType& type) {
  return {type.shape, to_dnnl(type.dtype), dnnl::memory::format_tag::any};
}

std::optional<graph::Layout> layout_from(const dnnl::memory::desc& desc) {
  const dnnl_memory_desc_t& raw = desc.data;
  if (raw.format_kind != dnnl_blocked || raw.extra.flags != 0) return std::nullopt;
  const auto& blocking = raw.format_desc.blocking;
  std::vector<graph::Layout::Block> inner;
  std::vector<int64_t> multiple(static_cast<size_t>(raw.ndims), 1);
  for (int i = 0; i < blocking.inner_nblks; ++i) {
    inner.push_back({static_cast<int>(blocking.inner_idxs[i]), blocking.inner_blks[i]});
    multiple[static_cast<size_t>(blocking.inner_idxs[i])] *= blocking.inner_blks[i];
  }
  std::vector<int> order(static_cast<size_t>(raw.ndims));
  std::iota(order.begin(), order.end(), 0);
  // Axes of a single block have arbitrary strides; the number of blocks settles ties.
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    const auto blocks = [&](int axis) {
      return raw.padded_dims[axis] / multiple[static_cast<size_t>(axis)];
    };
    if (blocking.strides[a] != blocking.strides[b])
      return blocking.strides[a] > blocking.strides[b];
    return blocks(a) > blocks(b) && blocks(b) == 1;
  });
  return graph::Layout(std::move(order), std::move(inner));
}

dnnl::primitive_attr dnnl_attributes(bool relu) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (relu) {
    dnnl::post_ops operations;
    operations.append_eltwise(1.0f, dnnl::algorithm::eltwise_relu, 0.0f, 0.0f);
    attributes.set_post_ops(operations);
  }
  return attributes;
}

DnnlKernel::DnnlKernel(dnnl::primitive primitive, const std::vector<DnnlArgument>& arguments,
                       const dnnl::memory::desc& scratchpad)
    : primitive_(std::move(primitive)), stream_(dnnl_engine()), sources_(arguments) {
  for (const DnnlArgument& argument : sources_) {
    memories_.push_back(unbound(argument.desc));
    bound_.push_back({argument.argument, memories_.back().get()});
  }
  scratchpad_bytes_ = scratchpad.get_size();
  if (scratchpad_bytes_ > 0) {
    memories_.push_back(unbound(scratchpad));
    bound_.push_back({DNNL_ARG_SCRATCHPAD, memories_.back().get()});
  }
}

void DnnlKernel::run(const KernelArguments& arguments) {
  for (size_t i = 0; i < sources_.size(); ++i) {
    const bool is_input = sources_[i].source == DnnlArgument::Source::input;
    std::byte* data = (is_input ? arguments.inputs : arguments.outputs)[sources_[i].index];
    memories_[i].set_data_handle(data);
  }
  if (scratchpad_bytes_ > 0) memories_.back().set_data_handle(arguments.workspace);
  dnnl::error::wrap_c_api(dnnl_primitive_execute(primitive_.get(), stream_.get(),
                                                 static_cast<int>(bound_.size()), bound_.data()),
                          "oneDNN could not run a primitive");
}

}  // namespace millrace::kernels
