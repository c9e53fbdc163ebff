#include "kernels/head/block_matmul.h"

#include <algorithm>

#include "base/parallel.h"
#include "kernels/processor.h"
#include "kernels/support/dnnl_support.h"

namespace millrace::kernels {
namespace {

// Primitives made meanwhile use the calling thread alone.
class AloneGuard {
 public:
  AloneGuard() { set_team_size(1); }
  ~AloneGuard() { set_team_size(before_); }
  AloneGuard(const AloneGuard&) = delete;
  AloneGuard& operator=(const AloneGuard&) = delete;

 private:
  int before_ = team_size();
};

dnnl::memory::desc matrix(int64_t rows, int64_t columns, graph::DataType type, bool transposed) {
  return {{rows, columns},
          kernels::to_dnnl(type),
          transposed ? dnnl::memory::dims{1, rows} : dnnl::memory::dims{columns, 1}};
}

dnnl::matmul::primitive_desc describe(const BlockMatmulShape& shape) {
  dnnl::primitive_attr attributes = dnnl_attributes();
  if (shape.accumulates) {
    dnnl::post_ops operations;
    operations.append_sum(1.0f);
    attributes.set_post_ops(operations);
  }
  const dnnl::memory::desc b = shape.packed_b ? dnnl_any({{shape.k, shape.n}, shape.type})
                                              : matrix(shape.k, shape.n, shape.type, false);
  return {{matrix(shape.m, shape.k, shape.type, shape.transposed_a), b,
           matrix(shape.m, shape.n, graph::DataType::f32, false)},
          attributes,
          dnnl_engine()};
}

}  // namespace

BlockMatmul::Call::Call(dnnl::primitive made,
                        const std::vector<std::pair<int, dnnl::memory::desc>>& arguments)
    : primitive(std::move(made)), stream(dnnl_engine()) {
  for (const auto& [argument, desc] : arguments) {
    memories.push_back({desc, dnnl_engine(), DNNL_MEMORY_NONE});
    bound.push_back({argument, memories.back().get()});
  }
}

void BlockMatmul::Call::run(std::initializer_list<const void*> pointers) {
  size_t i = 0;
  for (const void* pointer : pointers) memories[i++].set_data_handle(const_cast<void*>(pointer));
  dnnl::error::wrap_c_api(dnnl_primitive_execute(primitive.get(), stream.get(),
                                                 static_cast<int>(bound.size()), bound.data()),
                          "oneDNN could not run a primitive");
}

BlockMatmul::BlockMatmul(const BlockMatmulShape& shape, int parts) {
  const AloneGuard alone;
  const auto product = describe(shape);
  scratchpad_bytes_ = product.scratchpad_desc().get_size();
  packed_bytes_ = product.weights_desc().get_size();
  for (int part = 0; part < parts; ++part) {
    parts_.push_back({dnnl::matmul(product),
                      {{DNNL_ARG_SRC, product.src_desc()},
                       {DNNL_ARG_WEIGHTS, product.weights_desc()},
                       {DNNL_ARG_DST, product.dst_desc()},
                       {DNNL_ARG_SCRATCHPAD, product.scratchpad_desc()}}});
  }
  if (!shape.packed_b) return;
  for (const bool transposed : {false, true}) {
    const dnnl::reorder::primitive_desc reorder(
        dnnl_engine(), matrix(shape.k, shape.n, graph::DataType::f32, transposed), dnnl_engine(),
        product.weights_desc(), dnnl_attributes());
    scratchpad_bytes_ = std::max<uint64_t>(scratchpad_bytes_, reorder.scratchpad_desc().get_size());
    packs_.push_back({dnnl::reorder(reorder),
                      {{DNNL_ARG_FROM, reorder.src_desc()},
                       {DNNL_ARG_TO, reorder.dst_desc()},
                       {DNNL_ARG_SCRATCHPAD, reorder.scratchpad_desc()}}});
  }
}

void BlockMatmul::pack(const float* b, bool transposed, std::byte* scratchpad, std::byte* packed) {
  packs_[transposed ? 1 : 0].run({b, packed, scratchpad});
}

void BlockMatmul::run(int part, const void* a, const void* b, float* c, std::byte* scratchpad) {
  parts_[static_cast<size_t>(part)].run({a, b, c, scratchpad});
}

graph::DataType operand_type(graph::DataType storage) {
  return storage != graph::DataType::f32 && has_native_bf16() ? graph::DataType::bf16
                                                              : graph::DataType::f32;
}

}  // namespace millrace::kernels
