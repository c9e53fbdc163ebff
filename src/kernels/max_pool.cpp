// max_pool and its gradient on plain and channel-blocked images. The position of the maximum
// within its window is kept as one byte, so the input need not be kept for the backward pass.
#include <algorithm>
#include <limits>

#include "base/parallel.h"
#include "kernels/pool/pool_loops.h"
#include "kernels/processor.h"
#include "kernels/reference/reference.h"
#include "kernels/support/elements.h"
#include "kernels/support/layout_rules.h"

namespace millrace::kernels::max_pool {
namespace {

PoolGeometry geometry_of(const graph::Attributes& attributes, const graph::Shape& x,
                         const TensorSpec& y) {
  const int64_t block = y.layout.channel_block();
  const auto& kernel = attributes.integers("kernel");
  const auto& stride = attributes.integers("stride");
  const auto& padding = attributes.integers("padding");
  return {x[0] * ((x[1] + block - 1) / block),
          block,
          x[2],
          x[3],
          y.type.shape[2],
          y.type.shape[3],
          kernel[0],
          kernel[1],
          stride[0],
          stride[1],
          padding[0],
          padding[1],
          attributes.flag("relu")};
}

struct Span {
  int64_t first;
  int64_t last;
};

// Calls body(output value index, top, left, rows, columns) for every output pixel of a plane;
// rows and columns are the parts of the window that lie inside the image.
template <int kBlock, typename Body>
MILLRACE_INLINE void for_each_window(const PoolGeometry& g, const Body& body) {
  for (int64_t oh = 0; oh < g.out_height; ++oh) {
    const int64_t top = oh * g.stride_height - g.pad_height;
    const Span rows = {std::max<int64_t>(0, -top), std::min(g.kernel_height, g.height - top)};
    for (int64_t ow = 0; ow < g.out_width; ++ow) {
      const int64_t left = ow * g.stride_width - g.pad_width;
      const Span columns = {std::max<int64_t>(0, -left), std::min(g.kernel_width, g.width - left)};
      body((oh * g.out_width + ow) * kBlock, top, left, rows, columns);
    }
  }
}

template <int kBlock, typename Element>
MILLRACE_INLINE void pool_plane(const PoolGeometry& g, const Element* x, Element* y,
                                uint8_t* positions) {
  for_each_window<kBlock>(
      g, [&](int64_t at, int64_t top, int64_t left, Span rows, Span columns)
             __attribute__((always_inline)) {
               float best[kBlock];
               int32_t where[kBlock];
               const auto start = static_cast<int32_t>(rows.first * g.kernel_width + columns.first);
               for (int c = 0; c < kBlock; ++c) best[c] = -std::numeric_limits<float>::infinity();
               for (int c = 0; c < kBlock; ++c) where[c] = start;
               for (int64_t row = rows.first; row < rows.last; ++row) {
                 for (int64_t column = columns.first; column < columns.last; ++column) {
                   const Element* from = x + ((top + row) * g.width + left + column) * kBlock;
                   const auto position = static_cast<int32_t>(row * g.kernel_width + column);
#pragma omp simd
                   for (int c = 0; c < kBlock; ++c) {
                     const float value = as_float(from[c]);
                     const bool larger = (value > best[c]) | (value != value);
                     best[c] = larger ? value : best[c];
                     where[c] = larger ? position : where[c];
                   }
                 }
               }
               const float floor = g.relu ? 0.0f : -std::numeric_limits<float>::infinity();
               for (int c = 0; c < kBlock; ++c) put(best[c] < floor ? floor : best[c], y[at + c]);
               for (int c = 0; c < kBlock; ++c) positions[at + c] = static_cast<uint8_t>(where[c]);
             });
}

template <int kBlock, typename Element>
MILLRACE_INLINE void spread_plane(const PoolGeometry& g, const Element* dy,
                                  const uint8_t* positions, Element* dx) {
  std::fill_n(dx, g.input_values(), Element{});
  for_each_window<kBlock>(
      g, [&](int64_t at, int64_t top, int64_t left, Span rows, Span columns)
             __attribute__((always_inline)) {
               float gradient[kBlock];
               int32_t where[kBlock];
               for (int c = 0; c < kBlock; ++c) gradient[c] = as_float(dy[at + c]);
               for (int c = 0; c < kBlock; ++c) where[c] = positions[at + c];
               for (int64_t row = rows.first; row < rows.last; ++row) {
                 for (int64_t column = columns.first; column < columns.last; ++column) {
                   Element* to = dx + ((top + row) * g.width + left + column) * kBlock;
                   const auto position = static_cast<int32_t>(row * g.kernel_width + column);
                   for (int c = 0; c < kBlock; ++c) {
                     const float more = where[c] == position ? gradient[c] : 0.0f;
                     put(as_float(to[c]) + more, to[c]);
                   }
                 }
               }
             });
}

template <typename Element>
MILLRACE_INLINE void pool_any(const PoolGeometry& g, int64_t begin, int64_t end, const Element* x,
                              Element* y, uint8_t* positions) {
  for (int64_t i = begin; i < end; ++i) {
    const Element* from = x + i * g.input_values();
    Element* to = y + i * g.output_values();
    uint8_t* where = positions + i * g.output_values();
    if (g.block == 16) {
      pool_plane<16>(g, from, to, where);
    } else if (g.block == 8) {
      pool_plane<8>(g, from, to, where);
    } else {
      pool_plane<1>(g, from, to, where);
    }
  }
}

template <typename Element>
MILLRACE_INLINE void spread_any(const PoolGeometry& g, int64_t begin, int64_t end,
                                const Element* dy, const uint8_t* positions, Element* dx) {
  for (int64_t i = begin; i < end; ++i) {
    const Element* from = dy + i * g.output_values();
    const uint8_t* where = positions + i * g.output_values();
    Element* to = dx + i * g.input_values();
    if (g.block == 16) {
      spread_plane<16>(g, from, where, to);
    } else if (g.block == 8) {
      spread_plane<8>(g, from, where, to);
    } else {
      spread_plane<1>(g, from, where, to);
    }
  }
}

MILLRACE_VECTORIZED void pool_planes(const PoolGeometry& g, int64_t begin, int64_t end,
                                     const float* x, float* y, uint8_t* positions) {
  pool_any(g, begin, end, x, y, positions);
}

MILLRACE_VECTORIZED void pool_half_planes(const PoolGeometry& g, int64_t begin, int64_t end,
                                          const Bf16* x, Bf16* y, uint8_t* positions) {
  pool_any(g, begin, end, x, y, positions);
}

MILLRACE_VECTORIZED void spread_planes(const PoolGeometry& g, int64_t begin, int64_t end,
                                       const float* dy, const uint8_t* positions, float* dx) {
  spread_any(g, begin, end, dy, positions, dx);
}

MILLRACE_VECTORIZED void spread_half_planes(const PoolGeometry& g, int64_t begin, int64_t end,
                                            const Bf16* dy, const uint8_t* positions, Bf16* dx) {
  spread_any(g, begin, end, dy, positions, dx);
}

class MaxPool : public Kernel {
 public:
  explicit MaxPool(const KernelRequest& request)
      : geometry_(
            geometry_of(request.op.attributes, request.inputs[0].type.shape, request.outputs[0])),
        halves_(request.inputs[0].type.dtype == graph::DataType::bf16),
        loops_(widest_loops(pool_loops_avx512, pool_loops_avx2)) {
    if (loops_ != nullptr && loops_->lanes != geometry_.block) loops_ = nullptr;
  }

  void run(const KernelArguments& a) override {
    auto* positions = a.output<uint8_t>(1);
    parallel_ranges(geometry_.planes, 1, [&](int, int64_t begin, int64_t end) {
      if (!halves_ && loops_ != nullptr) {
        loops_->pool(geometry_, begin, end, a.input<float>(0), a.output<float>(0), positions);
      } else if (halves_) {
        pool_half_planes(geometry_, begin, end, a.input<Bf16>(0), a.output<Bf16>(0), positions);
      } else {
        pool_planes(geometry_, begin, end, a.input<float>(0), a.output<float>(0), positions);
      }
    });
  }

 private:
  PoolGeometry geometry_;
  bool halves_;
  const PoolLoops* loops_;  // for blocks of as many channels; null: none
};

class MaxPoolBackward : public Kernel {
 public:
  explicit MaxPoolBackward(const KernelRequest& request)
      : geometry_(
            geometry_of(request.op.attributes, request.outputs[0].type.shape, request.inputs[0])),
        halves_(request.inputs[0].type.dtype == graph::DataType::bf16) {}

  void run(const KernelArguments& a) override {
    const auto* positions = a.input<const uint8_t>(1);
    parallel_ranges(geometry_.planes, 1, [&](int, int64_t begin, int64_t end) {
      if (halves_) {
        spread_half_planes(geometry_, begin, end, a.input<Bf16>(0), positions, a.output<Bf16>(0));
      } else {
        spread_planes(geometry_, begin, end, a.input<float>(0), positions, a.output<float>(0));
      }
    });
  }

 private:
  PoolGeometry geometry_;
  bool halves_;
};

template <typename Implementation>
std::unique_ptr<Kernel> create(const KernelRequest& request, std::string* refusal) {
  const graph::Layout& layout = request.inputs[0].layout;
  const int64_t block = layout.channel_block();
  if (request.inputs[0].type.dtype == graph::DataType::f16) {
    *refusal = "needs f32 or bf16";
    return nullptr;
  }
  for (const auto& list : {request.inputs, request.outputs}) {
    for (const TensorSpec& spec : list) {
      if (spec.layout == layout && (block == 1 || block == 8 || block == 16)) continue;
      *refusal = "needs all images plain or all with channels in blocks of 8 or 16";
      return nullptr;
    }
  }
  return std::make_unique<Implementation>(request);
}

LayoutWish follow_image(const KernelRequest& request) { return follow_channels(request, 0); }

// They lie as the image that was pooled, which is larger than the gradient that arrives.
LayoutWish follow_positions(const KernelRequest& request) { return follow_channels(request, 1); }

}  // namespace

std::vector<KernelFamily> kernels() {
  return {{"max_pool",
           {{"planes", create<MaxPool>, true}, {"reference", reference_max_pool}},
           follow_image},
          {"max_pool_backward",
           {{"planes", create<MaxPoolBackward>, true}, {"reference", reference_max_pool_backward}},
           follow_positions}};
}

}  // namespace millrace::kernels::max_pool
