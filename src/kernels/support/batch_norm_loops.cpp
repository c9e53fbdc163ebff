#include "kernels/support/batch_norm_loops.h"

#include "kernels/support/elements.h"
#include "kernels/support/vector_math.h"

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

// Whoever is told that they are done finds them.
MILLRACE_INLINE void wait_for_far_stores() {
#ifdef __x86_64__
  __builtin_ia32_sfence();
#endif
}

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
  // Past the caches, to a line as it is.
  static MILLRACE_INLINE void store_far(float* to, Vector value) {
#ifdef __x86_64__
    using Quarter = float __attribute__((vector_size(16)));
    constexpr size_t kQuarters = kWidth * sizeof(float) / sizeof(Quarter);
#pragma GCC unroll 4
    for (size_t i = 0; i < kQuarters; ++i) {
      Quarter quarter;
      __builtin_memcpy(&quarter, reinterpret_cast<const char*>(&value) + i * sizeof(quarter),
                       sizeof(quarter));
      __builtin_ia32_movntps(to + i * sizeof(quarter) / sizeof(float), quarter);
    }
#else
    store(to, value);
#endif
  }
  static MILLRACE_INLINE void store_far(Bf16* to, Vector value) { store(to, value); }
  static MILLRACE_INLINE Vector parameter(const float* from) {
    if constexpr (kBlock == 1) {
      return Vector{} + from[0];
    } else {
      return load(from);
    }
  }
};

// A sum of many vectors, as exact as its pieces, which are sums of a few: what rounding takes from
// it is kept and given back.
template <typename Vector>
struct LongSum {
  Vector sum = {};
  Vector excess = {};

  MILLRACE_INLINE void add(const Vector& piece) {
    const Vector rest = piece - excess;
    const Vector next = sum + rest;
    excess = (next - sum) - rest;
    sum = next;
  }
};

constexpr int64_t kPiece = 64;  // vectors

template <int kBlock>
MILLRACE_INLINE void fold(const typename Lanes<kBlock>::Vector& lanes, float* sums) {
  if constexpr (kBlock == 1) {
    double total = 0;
    for (int i = 0; i < Lanes<1>::kWidth; ++i) total += static_cast<double>(lanes[i]);
    sums[0] = static_cast<float>(total);
  } else {
    Lanes<kBlock>::store(sums, lanes);
  }
}

// The sum of `count` values, a whole number of vectors, or of the squares of what they are off the
// centre.
template <int kBlock, bool kSquares, typename Element>
MILLRACE_INLINE typename Lanes<kBlock>::Vector sum_of(
    const Element* x, int64_t count, const typename Lanes<kBlock>::Vector& centre) {
  using L = Lanes<kBlock>;
  constexpr int64_t kPieceValues = kPiece * L::kWidth;
  LongSum<typename L::Vector> sum;
  for (int64_t begin = 0; begin < count; begin += kPieceValues) {
    const int64_t end = count - begin < kPieceValues ? count : begin + kPieceValues;
    typename L::Vector parts[2] = {};
    int64_t i = begin;
    for (; i + 2 * L::kWidth <= end; i += 2 * L::kWidth) {
#pragma GCC unroll 2
      for (int64_t part = 0; part < 2; ++part) {
        const auto value = L::load(x + i + part * L::kWidth) - centre;
        parts[part] += kSquares ? value * value : value;
      }
    }
    if (i < end) {
      const auto value = L::load(x + i) - centre;
      parts[0] += kSquares ? value * value : value;
    }
    sum.add(parts[0] + parts[1]);
  }
  return sum.sum;
}

template <int kBlock, typename Element>
MILLRACE_INLINE void statistics(const Element* x, int64_t pixels, float* mean, float* deviations) {
  using L = Lanes<kBlock>;
  const int64_t count = pixels * kBlock;
  const int64_t whole = count / L::kWidth * L::kWidth;
  fold<kBlock>(sum_of<kBlock, false>(x, whole, typename L::Vector{}), mean);
  for (int64_t i = whole; i < count; ++i) mean[0] += as_float(x[i]);
  for (int c = 0; c < kBlock; ++c) mean[c] /= static_cast<float>(pixels);

  fold<kBlock>(sum_of<kBlock, true>(x, whole, L::parameter(mean)), deviations);
  for (int64_t i = whole; i < count; ++i) {
    const float away = as_float(x[i]) - mean[0];
    deviations[0] += away * away;
  }
}

using Kind = Bend::Kind;

// Of a scalar or a vector.
template <Kind kKind, typename Value>
MILLRACE_INLINE Value bent(const Value& value, const Value& slope) {
  if constexpr (kKind == Kind::none) return value;
  if constexpr (kKind == Kind::prelu) return value > 0.0f ? value : value * slope;
  if constexpr (kKind == Kind::silu) return vector_silu(value);
  if constexpr (kKind == Kind::hardswish) return vector_hardswish(value);
  const Value positive = value < 0.0f ? Value{} : value;
  if constexpr (kKind == Kind::relu6) return positive > 6.0f ? Value{} + 6.0f : positive;
  return positive;
}

// What is left of a gradient in front of the bend of `value`.
template <Kind kKind, typename Value>
MILLRACE_INLINE Value unbent(const Value& gradient, const Value& value, const Value& slope) {
  if constexpr (kKind == Kind::none) return gradient;
  if constexpr (kKind == Kind::prelu) return value > 0.0f ? gradient : gradient * slope;
  if constexpr (kKind == Kind::silu) return gradient * vector_silu_slope(value);
  if constexpr (kKind == Kind::hardswish) return gradient * vector_hardswish_slope(value);
  // One comparison for both ends: two make scalar code of vectors with GCC 12.
  const Value inside = kKind == Kind::relu6 ? value * (6.0f - value) : value;
  return inside > 0.0f ? gradient : Value{};
}

template <int kBlock, Kind kKind>
MILLRACE_INLINE typename Lanes<kBlock>::Vector slopes_of(const Bend& bend) {
  typename Lanes<kBlock>::Vector slopes = {};
  if constexpr (kKind == Kind::prelu) slopes = Lanes<kBlock>::parameter(bend.slopes);
  return slopes;
}

template <int kBlock, bool kResidual, Kind kKind, typename Element>
MILLRACE_INLINE void apply(const Element* x, const Element* residual, const float* factor,
                           const float* offset, const Bend& bend, int64_t pixels, bool far,
                           Element* y) {
  using L = Lanes<kBlock>;
  const auto scale = L::parameter(factor);
  const auto start = L::parameter(offset);
  const auto slopes = slopes_of<kBlock, kKind>(bend);
  const int64_t count = pixels * kBlock;
  const int64_t whole = count / L::kWidth * L::kWidth;
  for (int64_t i = 0; i < whole; i += L::kWidth) {
    auto value = L::load(x + i) * scale + start;
    if constexpr (kResidual) value += L::load(residual + i);
    if (far) {
      L::store_far(y + i, bent<kKind>(value, slopes));
    } else {
      L::store(y + i, bent<kKind>(value, slopes));
    }
  }
  if (far) wait_for_far_stores();
  for (int64_t i = whole; i < count; ++i) {
    float value = as_float(x[i]) * factor[0] + offset[0];
    if constexpr (kResidual) value += as_float(residual[i]);
    put(bent<kKind>(value, slopes[0]), y[i]);
  }
}

template <int kBlock, Kind kKind, typename Element>
MILLRACE_INLINE void apply_bend(const Element* x, const Element* residual, const float* factor,
                                const float* offset, const Bend& bend, int64_t pixels, bool far,
                                Element* y) {
  if (residual != nullptr) {
    apply<kBlock, true, kKind>(x, residual, factor, offset, bend, pixels, far, y);
  } else {
    apply<kBlock, false, kKind>(x, residual, factor, offset, bend, pixels, far, y);
  }
}

template <int kBlock, Kind kKind, typename Element>
MILLRACE_INLINE void gradient_sums(const Element* dy, const Element* x, const float* mean,
                                   const float* factor, const float* offset, const Bend& bend,
                                   int64_t pixels, float* sum, float* weighted_sum,
                                   float* slope_sum) {
  using L = Lanes<kBlock>;
  const auto centre = L::parameter(mean);
  const auto scale = L::parameter(factor);
  const auto start = L::parameter(offset);
  const auto slopes = slopes_of<kBlock, kKind>(bend);
  LongSum<typename L::Vector> plain;
  LongSum<typename L::Vector> weighted;
  LongSum<typename L::Vector> sloped;
  const int64_t count = pixels * kBlock;
  const int64_t whole = count / L::kWidth * L::kWidth;
  constexpr int64_t kPieceValues = kPiece * L::kWidth;
  for (int64_t begin = 0; begin < whole; begin += kPieceValues) {
    const int64_t end = whole - begin < kPieceValues ? whole : begin + kPieceValues;
    typename L::Vector parts[3] = {};
    for (int64_t i = begin; i < end; i += L::kWidth) {
      const auto value = L::load(x + i);
      const auto arrived = L::load(dy + i);
      const auto normal = value * scale + start;
      if constexpr (kKind == Kind::prelu) {
        parts[2] += normal > 0.0f ? typename L::Vector{} : arrived * normal;
      }
      const auto gradient = unbent<kKind>(arrived, normal, slopes);
      parts[0] += gradient;
      parts[1] += gradient * (value - centre);
    }
    plain.add(parts[0]);
    weighted.add(parts[1]);
    if constexpr (kKind == Kind::prelu) sloped.add(parts[2]);
  }
  fold<kBlock>(plain.sum, sum);
  fold<kBlock>(weighted.sum, weighted_sum);
  if constexpr (kKind == Kind::prelu) fold<kBlock>(sloped.sum, slope_sum);
  for (int64_t i = whole; i < count; ++i) {
    const float value = as_float(x[i]);
    const float normal = value * factor[0] + offset[0];
    const float gradient = unbent<kKind>(as_float(dy[i]), normal, slopes[0]);
    if (kKind == Kind::prelu && !(normal > 0.0f)) slope_sum[0] += as_float(dy[i]) * normal;
    sum[0] += gradient;
    weighted_sum[0] += gradient * (value - mean[0]);
  }
}

template <int kBlock, Kind kKind, typename Element>
MILLRACE_INLINE void gradient(const Element* dy, const Element* x, const float* mean,
                              const float* factor, const float* offset, const float* slope,
                              const float* shift, const Bend& bend, int64_t pixels, Element* dx) {
  using L = Lanes<kBlock>;
  const auto centre = L::parameter(mean);
  const auto scale = L::parameter(factor);
  const auto start = L::parameter(offset);
  const auto tilt = L::parameter(slope);
  const auto level = L::parameter(shift);
  const auto slopes = slopes_of<kBlock, kKind>(bend);
  const int64_t count = pixels * kBlock;
  const int64_t whole = count / L::kWidth * L::kWidth;
  for (int64_t i = 0; i < whole; i += L::kWidth) {
    const auto value = L::load(x + i);
    const auto incoming = unbent<kKind>(L::load(dy + i), value * scale + start, slopes);
    L::store(dx + i, incoming * scale + (value - centre) * tilt + level);
  }
  for (int64_t i = whole; i < count; ++i) {
    const float value = as_float(x[i]);
    const float normal = value * factor[0] + offset[0];
    const float incoming = unbent<kKind>(as_float(dy[i]), normal, slopes[0]);
    put(incoming * factor[0] + (value - mean[0]) * slope[0] + shift[0], dx[i]);
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

template <Kind kKind, typename Element>
MILLRACE_INLINE void any_apply(const Element* x, const Element* residual, const float* factor,
                               const float* offset, const Bend& bend, int64_t pixels, int64_t block,
                               bool far, Element* y) {
  if (block == 16) return apply_bend<16, kKind>(x, residual, factor, offset, bend, pixels, far, y);
  if (block == 8) return apply_bend<8, kKind>(x, residual, factor, offset, bend, pixels, far, y);
  apply_bend<1, kKind>(x, residual, factor, offset, bend, pixels, far, y);
}

template <Kind kKind, typename Element>
MILLRACE_INLINE void any_gradient_sums(const Element* dy, const Element* x, const float* mean,
                                       const float* factor, const float* offset, const Bend& bend,
                                       int64_t pixels, int64_t block, float* sum,
                                       float* weighted_sum, float* slope_sum) {
  if (block == 16) {
    return gradient_sums<16, kKind>(dy, x, mean, factor, offset, bend, pixels, sum, weighted_sum,
                                    slope_sum);
  }
  if (block == 8) {
    return gradient_sums<8, kKind>(dy, x, mean, factor, offset, bend, pixels, sum, weighted_sum,
                                   slope_sum);
  }
  gradient_sums<1, kKind>(dy, x, mean, factor, offset, bend, pixels, sum, weighted_sum, slope_sum);
}

template <Kind kKind, typename Element>
MILLRACE_INLINE void any_gradient(const Element* dy, const Element* x, const float* mean,
                                  const float* factor, const float* offset, const float* slope,
                                  const float* shift, const Bend& bend, int64_t pixels,
                                  int64_t block, Element* dx) {
  if (block == 16) {
    return gradient<16, kKind>(dy, x, mean, factor, offset, slope, shift, bend, pixels, dx);
  }
  if (block == 8) {
    return gradient<8, kKind>(dy, x, mean, factor, offset, slope, shift, bend, pixels, dx);
  }
  gradient<1, kKind>(dy, x, mean, factor, offset, slope, shift, bend, pixels, dx);
}

}  // namespace

// Functions for several instruction sets cannot be templates, and those that they are made of have
// to be inlined.
#define MILLRACE_BY_KIND(kind, function, ...)        \
  switch (kind) {                                    \
    case Kind::none:                                 \
      return function<Kind::none>(__VA_ARGS__);      \
    case Kind::relu:                                 \
      return function<Kind::relu>(__VA_ARGS__);      \
    case Kind::relu6:                                \
      return function<Kind::relu6>(__VA_ARGS__);     \
    case Kind::prelu:                                \
      return function<Kind::prelu>(__VA_ARGS__);     \
    case Kind::silu:                                 \
      return function<Kind::silu>(__VA_ARGS__);      \
    case Kind::hardswish:                            \
      return function<Kind::hardswish>(__VA_ARGS__); \
  }

#define MILLRACE_PLANE_LOOPS(Element)                                                              \
  MILLRACE_VECTORIZED                                                                              \
  void plane_statistics(const Element* x, int64_t pixels, int64_t block, float* mean,              \
                        float* deviations) {                                                       \
    any_statistics(x, pixels, block, mean, deviations);                                            \
  }                                                                                                \
  MILLRACE_VECTORIZED                                                                              \
  void plane_apply(const Element* x, const Element* residual, const float* factor,                 \
                   const float* offset, const Bend& bend, int64_t pixels, int64_t block, bool far, \
                   Element* y) {                                                                   \
    MILLRACE_BY_KIND(bend.kind, any_apply, x, residual, factor, offset, bend, pixels, block, far,  \
                     y);                                                                           \
  }                                                                                                \
  MILLRACE_VECTORIZED                                                                              \
  void plane_gradient_sums(const Element* dy, const Element* x, const float* mean,                 \
                           const float* factor, const float* offset, const Bend& bend,             \
                           int64_t pixels, int64_t block, float* sum, float* weighted_sum,         \
                           float* slope_sum) {                                                     \
    MILLRACE_BY_KIND(bend.kind, any_gradient_sums, dy, x, mean, factor, offset, bend, pixels,      \
                     block, sum, weighted_sum, slope_sum);                                         \
  }                                                                                                \
  MILLRACE_VECTORIZED                                                                              \
  void plane_gradient(const Element* dy, const Element* x, const float* mean, const float* factor, \
                      const float* offset, const float* slope, const float* shift,                 \
                      const Bend& bend, int64_t pixels, int64_t block, Element* dx) {              \
    MILLRACE_BY_KIND(bend.kind, any_gradient, dy, x, mean, factor, offset, slope, shift, bend,     \
                     pixels, block, dx);                                                           \
  }

MILLRACE_PLANE_LOOPS(float)
MILLRACE_PLANE_LOOPS(Bf16)

}  // namespace millrace::kernels
