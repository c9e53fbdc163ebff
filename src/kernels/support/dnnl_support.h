// The bridge to oneDNN: descriptors of our tensors, and a kernel around one primitive.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>
#include <optional>
#include <vector>

#include "kernels/kernel.h"

namespace millrace::kernels {

const dnnl::engine& dnnl_engine();

dnnl::memory::data_type to_dnnl(graph::DataType type);

// The descriptor of a tensor in its layout, or with the layout left to oneDNN.
dnnl::memory::desc dnnl_desc(const TensorSpec& spec);
dnnl::memory::desc dnnl_any(const graph::TensorType& type);

// The same memory seen with another shape of equal elements; for plain layouts only.
dnnl::memory::desc dnnl_plain(const graph::Shape& shape, graph::DataType type);

// The layout of a descriptor that oneDNN chose; empty optional for opaque formats.
std::optional<graph::Layout> layout_from(const dnnl::memory::desc& desc);

// Attributes that make oneDNN take its scratchpad from us; with `relu`, a ReLU follows.
dnnl::primitive_attr dnnl_attributes(bool relu = false);

// Where an argument of a primitive comes from.
struct DnnlArgument {
  enum class Source : uint8_t { input, output };
  int argument;  // DNNL_ARG_...
  Source source;
  size_t index;
  dnnl::memory::desc desc;
};

// Runs one oneDNN primitive. Arguments are bound to whatever pointers a run brings; nothing is
// allocated by us while running.
class DnnlKernel : public Kernel {
 public:
  DnnlKernel(dnnl::primitive primitive, const std::vector<DnnlArgument>& arguments,
             const dnnl::memory::desc& scratchpad);

  uint64_t workspace_bytes() const override { return scratchpad_bytes_; }
  void run(const KernelArguments& arguments) override;

 private:
  dnnl::primitive primitive_;
  dnnl::stream stream_;
  std::vector<DnnlArgument> sources_;
  std::vector<dnnl::memory> memories_;
  std::vector<dnnl_exec_arg_t> bound_;
  uint64_t scratchpad_bytes_ = 0;
};

inline DnnlArgument from_input(int argument, size_t index, const dnnl::memory::desc& desc) {
  return {argument, DnnlArgument::Source::input, index, desc};
}
inline DnnlArgument from_output(int argument, size_t index, const dnnl::memory::desc& desc) {
  return {argument, DnnlArgument::Source::output, index, desc};
}

}  // namespace millrace::kernels
