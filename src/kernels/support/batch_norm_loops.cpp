#include "kernels/support/batch_norm_loops.h"

#include "kernels/support/elements.h"

// Vectors are passed by value only between inlined functions, so their calling convention does
// not matter.
#pragma GCC diagnostic ignored "-Wpsabi"

namespace millrace::kernels {
namespace {

// Between bf16 and the lanes of a vector; written out because vectors whose size depends on a
// template's parameter cannot be converted.
#define MILLRACE_HALF_LANES(kLanes)                                                        \
  typedef float Floats##kLanes __attribute__((vector_size(kLanes * sizeof(float))));       \
  typedef uint32_t Words##kLanes __attribute__((vector_size(kLanes * sizeof(uint32_t))));  \
  typedef uint16_t Halves##kLanes __attribute__((vector_size(kLanes * sizeof(uint16_t)))); \
  MILLRACE_INLINE void load_halves(const Bf16* from, Floats##kLanes& value) {              \
    Halves##kLanes halves;                                                                 \
    __builtin_memcpy(&halves, from, sizeof(halves));                                       \
    value = (Floats##kLanes)(__builtin_convertvector(halves, Words##kLanes) << 16);        \
  }                                                                                        \
  MILLRACE_INLINE void store_halves(Bf16* to, const Floats##kLanes& value) {               \
    const auto bits = (Words##kLanes)value;                                                \
    const Words##kLanes rounded = bits + 0x7FFFu + (bits >> 16 & 1u);                      \
    const Words##kLanes kept = value == value ? rounded : bits | 0x400000u;                \
    const auto halves = __builtin_convertvector(kept >> 16, Halves##kLanes);               \
    __builtin_memcpy(to, &halves, sizeof(halves));                                         \
  }

MILLRACE_HALF_LANES(8)
MILLRACE_HALF_LANES(16)

template <int kWidth>
struct FloatsOf {
  using Type = Floats16;
};
template <>
struct FloatsOf<8> {
  using Type = Floats8;
};

// For blocked layouts the lanes of a vector are channels; for the plain layout they are
// neighbouring pixels of one channel, which share its parameters.
template <int kBlock>
struct Lanes {
  static constexpr int kWidth = kBlock == 1 ? 16 : kBlock;
  typedef float Vector __attribute__((vector_size(kWidth * sizeof(float))));
  typedef int32_t Mask __attribute__((vector_size(kWidth * sizeof(float))));

  static MILLRACE_INLINE Vector load(const float* from) {
    Vector value;
    __builtin_memcpy(&value, from, sizeof(value));
    return value;
  }
  static MILLRACE_INLINE Vector load(const Bf16* from) {
    typename FloatsOf<kWidth>::Type wide;
    load_halves(from, wide);
    Vector value;
    __builtin_memcpy(&value, &wide, sizeof(value));
    return value;
  }
  static MILLRACE_INLINE void store(float* to, Vector value) {
    __builtin_memcpy(to, &value, sizeof(value));
  }
  static MILLRACE_INLINE void store(Bf16* to, Vector value) {
    typename FloatsOf<kWidth>::Type wide;
    __builtin_memcpy(&wide, &value, sizeof(value));
    store_halves(to, wide);
  }
  static MILLRACE_INLINE Vector parameter(const float* from) {
    if constexpr (kBlock == 1) {
      return Vector{} + from[0];
    } else {
      return load(from);
    }
  }
};

template <int kBlock>
MILLRACE_INLINE void fold(const typename Lanes<kBlock>::Vector& lanes, float* sums) {
  if constexpr (kBlock == 1) {
    float total = 0;
    for (int i = 0; i < Lanes<1>::kWidth; ++i) total += lanes[i];
    sums[0] = total;
  } else {
    Lanes<kBlock>::store(sums, lanes);
  }
}

template <int kBlock, typename Element>
MILLRACE_INLINE void statistics(const Element* x, int64_t pixels, float* mean, float* deviations) {
  using L = Lanes<kBlock>;
  typename L::Vector first = {};
  typename L::Vector second = {};
  const int64_t count = pixels * kBlock;
  const int64_t paired = count / (2 * L::kWidth) * (2 * L::kWidth);
  for (int64_t i = 0; i < paired; i += 2 * L::kWidth) {
    first += L::load(x + i);
    second += L::load(x + i + L::kWidth);
  }
  const int64_t whole = count / L::kWidth * L::kWidth;
  for (int64_t i = paired; i < whole; i += L::kWidth) first += L::load(x + i);
  fold<kBlock>(first + second, mean);
  for (int64_t i = whole; i < count; ++i) mean[0] += as_float(x[i]);
  for (int c = 0; c < kBlock; ++c) mean[c] /= static_cast<float>(pixels);

  const typename L::Vector centre = L::parameter(mean);
  first = typename L::Vector{};
  second = typename L::Vector{};
  for (int64_t i = 0; i < paired; i += 2 * L::kWidth) {
    const auto a = L::load(x + i) - centre;
    const auto b = L::load(x + i + L::kWidth) - centre;
    first += a * a;
    second += b * b;
  }
  for (int64_t i = paired; i < whole; i += L::kWidth) {
    const auto a = L::load(x + i) - centre;
    first += a * a;
  }
  fold<kBlock>(first + second, deviations);
  for (int64_t i = whole; i < count; ++i) {
    const float away = as_float(x[i]) - mean[0];
    deviations[0] += away * away;
  }
}

template <int kBlock, bool kResidual, bool kRelu, typename Element>
MILLRACE_INLINE void apply(const Element* x, const Element* residual, const float* factor,
                           const float* offset, int64_t pixels, Element* y) {
  using L = Lanes<kBlock>;
  const auto scale = L::parameter(factor);
  const auto start = L::parameter(offset);
  const int64_t count = pixels * kBlock;
  const int64_t whole = count / L::kWidth * L::kWidth;
  for (int64_t i = 0; i < whole; i += L::kWidth) {
    auto value = L::load(x + i) * scale + start;
    if constexpr (kResidual) value += L::load(residual + i);
    if constexpr (kRelu) value = value < 0.0f ? typename L::Vector{} : value;
    L::store(y + i, value);
  }
  for (int64_t i = whole; i < count; ++i) {
    float value = as_float(x[i]) * factor[0] + offset[0];
    if constexpr (kResidual) value += as_float(residual[i]);
    if constexpr (kRelu) value = value < 0.0f ? 0.0f : value;
    put(value, y[i]);
  }
}

template <int kBlock, typename Element>
MILLRACE_INLINE void apply_any(const Element* x, const Element* residual, const float* factor,
                               const float* offset, bool relu, int64_t pixels, Element* y) {
  if (residual != nullptr && relu) {
    apply<kBlock, true, true>(x, residual, factor, offset, pixels, y);
  } else if (residual != nullptr) {
    apply<kBlock, true, false>(x, residual, factor, offset, pixels, y);
  } else if (relu) {
    apply<kBlock, false, true>(x, residual, factor, offset, pixels, y);
  } else {
    apply<kBlock, false, false>(x, residual, factor, offset, pixels, y);
  }
}

template <int kBlock, bool kRelu, typename Element>
MILLRACE_INLINE void gradient_sums(const Element* dy, const Element* x, const float* mean,
                                   const float* factor, const float* offset, int64_t pixels,
                                   float* sum, float* weighted_sum) {
  using L = Lanes<kBlock>;
  const auto centre = L::parameter(mean);
  const auto scale = L::parameter(factor);
  const auto start = L::parameter(offset);
  typename L::Vector plain = {};
  typename L::Vector weighted = {};
  const int64_t count = pixels * kBlock;
  const int64_t whole = count / L::kWidth * L::kWidth;
  for (int64_t i = 0; i < whole; i += L::kWidth) {
    const auto value = L::load(x + i);
    auto gradient = L::load(dy + i);
    if constexpr (kRelu) {
      gradient = value * scale + start > 0.0f ? gradient : typename L::Vector{};
    }
    plain += gradient;
    weighted += gradient * (value - centre);
  }
  fold<kBlock>(plain, sum);
  fold<kBlock>(weighted, weighted_sum);
  for (int64_t i = whole; i < count; ++i) {
    const float value = as_float(x[i]);
    if (kRelu && !(value * factor[0] + offset[0] > 0.0f)) continue;
    sum[0] += as_float(dy[i]);
    weighted_sum[0] += as_float(dy[i]) * (value - mean[0]);
  }
}

template <int kBlock, bool kRelu, typename Element>
MILLRACE_INLINE void gradient(const Element* dy, const Element* x, const float* mean,
                              const float* factor, const float* offset, const float* slope,
                              const float* shift, int64_t pixels, Element* dx) {
  using L = Lanes<kBlock>;
  const auto centre = L::parameter(mean);
  const auto scale = L::parameter(factor);
  const auto start = L::parameter(offset);
  const auto tilt = L::parameter(slope);
  const auto level = L::parameter(shift);
  const int64_t count = pixels * kBlock;
  const int64_t whole = count / L::kWidth * L::kWidth;
  for (int64_t i = 0; i < whole; i += L::kWidth) {
    const auto value = L::load(x + i);
    auto incoming = L::load(dy + i);
    if constexpr (kRelu) {
      incoming = value * scale + start > 0.0f ? incoming : typename L::Vector{};
    }
    L::store(dx + i, incoming * scale + (value - centre) * tilt + level);
  }
  for (int64_t i = whole; i < count; ++i) {
    const float value = as_float(x[i]);
    const bool open = !kRelu || value * factor[0] + offset[0] > 0.0f;
    const float scaled = open ? as_float(dy[i]) * factor[0] : 0.0f;
    put(scaled + (value - mean[0]) * slope[0] + shift[0], dx[i]);
  }
}

// ---- By block.

template <typename Element>
MILLRACE_INLINE void any_statistics(const Element* x, int64_t pixels, int64_t block, float* mean,
                                    float* deviations) {
  if (block == 16) return statistics<16>(x, pixels, mean, deviations);
  if (block == 8) return statistics<8>(x, pixels, mean, deviations);
  statistics<1>(x, pixels, mean, deviations);
}

template <typename Element>
MILLRACE_INLINE void any_apply(const Element* x, const Element* residual, const float* factor,
                               const float* offset, bool relu, int64_t pixels, int64_t block,
                               Element* y) {
  if (block == 16) return apply_any<16>(x, residual, factor, offset, relu, pixels, y);
  if (block == 8) return apply_any<8>(x, residual, factor, offset, relu, pixels, y);
  apply_any<1>(x, residual, factor, offset, relu, pixels, y);
}

template <bool kRelu, typename Element>
MILLRACE_INLINE void any_gradient_sums(const Element* dy, const Element* x, const float* mean,
                                       const float* factor, const float* offset, int64_t pixels,
                                       int64_t block, float* sum, float* weighted_sum) {
  if (block == 16) {
    return gradient_sums<16, kRelu>(dy, x, mean, factor, offset, pixels, sum, weighted_sum);
  }
  if (block == 8) {
    return gradient_sums<8, kRelu>(dy, x, mean, factor, offset, pixels, sum, weighted_sum);
  }
  gradient_sums<1, kRelu>(dy, x, mean, factor, offset, pixels, sum, weighted_sum);
}

template <bool kRelu, typename Element>
MILLRACE_INLINE void any_gradient(const Element* dy, const Element* x, const float* mean,
                                  const float* factor, const float* offset, const float* slope,
                                  const float* shift, int64_t pixels, int64_t block, Element* dx) {
  if (block == 16) {
    return gradient<16, kRelu>(dy, x, mean, factor, offset, slope, shift, pixels, dx);
  }
  if (block == 8) {
    return gradient<8, kRelu>(dy, x, mean, factor, offset, slope, shift, pixels, dx);
  }
  gradient<1, kRelu>(dy, x, mean, factor, offset, slope, shift, pixels, dx);
}

}  // namespace

// Functions for several instruction sets cannot be templates.
#define MILLRACE_PLANE_LOOPS(Element)                                                              \
  MILLRACE_VECTORIZED                                                                              \
  void plane_statistics(const Element* x, int64_t pixels, int64_t block, float* mean,              \
                        float* deviations) {                                                       \
    any_statistics(x, pixels, block, mean, deviations);                                            \
  }                                                                                                \
  MILLRACE_VECTORIZED                                                                              \
  void plane_apply(const Element* x, const Element* residual, const float* factor,                 \
                   const float* offset, bool relu, int64_t pixels, int64_t block, Element* y) {    \
    any_apply(x, residual, factor, offset, relu, pixels, block, y);                                \
  }                                                                                                \
  MILLRACE_VECTORIZED                                                                              \
  void plane_gradient_sums(const Element* dy, const Element* x, const float* mean,                 \
                           const float* factor, const float* offset, bool relu, int64_t pixels,    \
                           int64_t block, float* sum, float* weighted_sum) {                       \
    if (relu) {                                                                                    \
      any_gradient_sums<true>(dy, x, mean, factor, offset, pixels, block, sum, weighted_sum);      \
    } else {                                                                                       \
      any_gradient_sums<false>(dy, x, mean, factor, offset, pixels, block, sum, weighted_sum);     \
    }                                                                                              \
  }                                                                                                \
  MILLRACE_VECTORIZED                                                                              \
  void plane_gradient(const Element* dy, const Element* x, const float* mean, const float* factor, \
                      const float* offset, const float* slope, const float* shift, bool relu,      \
                      int64_t pixels, int64_t block, Element* dx) {                                \
    if (relu) {                                                                                    \
      any_gradient<true>(dy, x, mean, factor, offset, slope, shift, pixels, block, dx);            \
    } else {                                                                                       \
      any_gradient<false>(dy, x, mean, factor, offset, slope, shift, pixels, block, dx);           \
    }                                                                                              \
  }

MILLRACE_PLANE_LOOPS(float)
MILLRACE_PLANE_LOOPS(Bf16)

}  // namespace millrace::kernels
