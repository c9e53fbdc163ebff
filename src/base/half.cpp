#include "base/half.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace millrace {
namespace {

void plain_floats_to_f16(const float* values, int64_t count, uint16_t* halves) {
  for (int64_t i = 0; i < count; ++i) halves[i] = to_f16(values[i]);
}

void plain_floats_to_bf16(const float* values, int64_t count, uint16_t* halves) {
  for (int64_t i = 0; i < count; ++i) halves[i] = to_bf16(values[i]);
}

void plain_f16_to_floats(const uint16_t* halves, int64_t count, float* values) {
  for (int64_t i = 0; i < count; ++i) values[i] = from_f16(halves[i]);
}

void plain_bf16_to_floats(const uint16_t* halves, int64_t count, float* values) {
  for (int64_t i = 0; i < count; ++i) values[i] = from_bf16(halves[i]);
}

constexpr HalfFunctions kPlain = {plain_floats_to_f16, plain_floats_to_bf16, plain_f16_to_floats,
                                  plain_bf16_to_floats};

#if defined(__x86_64__)

#define MILLRACE_AVX2 __attribute__((target("avx2,f16c")))
#define MILLRACE_AVX512 __attribute__((target("avx512f")))
#define MILLRACE_AVX512_INLINE inline __attribute__((always_inline, target("avx512f")))

MILLRACE_AVX2 void avx2_floats_to_f16(const float* values, int64_t count, uint16_t* halves) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i packed = _mm256_cvtps_ph(_mm256_loadu_ps(values + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(halves + i), packed);
  }
  for (; i < count; ++i) halves[i] = to_f16(values[i]);
}

MILLRACE_AVX2 void avx2_f16_to_floats(const uint16_t* halves, int64_t count, float* values) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i packed = _mm_loadu_si128(reinterpret_cast<const __m128i*>(halves + i));
    _mm256_storeu_ps(values + i, _mm256_cvtph_ps(packed));
  }
  for (; i < count; ++i) values[i] = from_f16(halves[i]);
}

MILLRACE_AVX2 void avx2_bf16_to_floats(const uint16_t* halves, int64_t count, float* values) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i packed = _mm_loadu_si128(reinterpret_cast<const __m128i*>(halves + i));
    const __m256i wide = _mm256_slli_epi32(_mm256_cvtepu16_epi32(packed), 16);
    _mm256_storeu_ps(values + i, _mm256_castsi256_ps(wide));
  }
  for (; i < count; ++i) values[i] = from_bf16(halves[i]);
}

MILLRACE_AVX2 void avx2_floats_to_bf16(const float* values, int64_t count, uint16_t* halves) {
  const __m256i half_unit = _mm256_set1_epi32(0x7FFF);
  const __m256i one = _mm256_set1_epi32(1);
  const __m256i quiet = _mm256_set1_epi32(0x400000);
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256 floats = _mm256_loadu_ps(values + i);
    const __m256i bits = _mm256_castps_si256(floats);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), one);
    const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(half_unit, odd));
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(floats, floats, _CMP_UNORD_Q));
    const __m256i kept = _mm256_blendv_epi8(rounded, _mm256_or_si256(bits, quiet), is_nan);
    const __m256i upper = _mm256_srli_epi32(kept, 16);
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(upper, upper), 0x08);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(halves + i), _mm256_castsi256_si128(packed));
  }
  for (; i < count; ++i) halves[i] = to_bf16(values[i]);
}

constexpr HalfFunctions kAvx2 = {avx2_floats_to_f16, avx2_floats_to_bf16, avx2_f16_to_floats,
                                 avx2_bf16_to_floats};

// Bytes of an array from which on it is written past the caches.
constexpr int64_t kStreamedBytes = 4 << 20;

// Elements before the first that lies at a multiple of 64 bytes.
template <typename T>
int64_t elements_to_line(const T* place, int64_t count) {
  const auto misplaced = static_cast<int64_t>(reinterpret_cast<uintptr_t>(place) % 64);
  const int64_t elements = misplaced == 0 ? 0 : (64 - misplaced) / int64_t{sizeof(T)};
  return elements < count ? elements : count;
}

struct ToF16 {
  static uint16_t one(float value) { return to_f16(value); }
  MILLRACE_AVX512_INLINE static __m256i pack(__m512 values) {
    return _mm512_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT);
  }
};

struct ToBf16 {
  static uint16_t one(float value) { return to_bf16(value); }
  MILLRACE_AVX512_INLINE static __m256i pack(__m512 values) {
    const __m512i bits = _mm512_castps_si512(values);
    const __m512i odd = _mm512_and_epi32(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i up = _mm512_add_epi32(_mm512_set1_epi32(0x7FFF), odd);
    const __mmask16 is_nan = _mm512_cmp_ps_mask(values, values, _CMP_UNORD_Q);
    const __m512i rounded = _mm512_add_epi32(bits, up);
    const __m512i kept = _mm512_mask_or_epi32(rounded, is_nan, bits, _mm512_set1_epi32(0x400000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(kept, 16));
  }
};

struct FromF16 {
  static float one(uint16_t half) { return from_f16(half); }
  MILLRACE_AVX512_INLINE static __m512 unpack(__m256i halves) { return _mm512_cvtph_ps(halves); }
};

struct FromBf16 {
  static float one(uint16_t half) { return from_bf16(half); }
  MILLRACE_AVX512_INLINE static __m512 unpack(__m256i halves) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
  }
};

// Whole lines of 64 bytes; the few elements before and behind them are converted one by one.
template <typename Conversion>
MILLRACE_AVX512 void avx512_narrow(const float* values, int64_t count, uint16_t* halves) {
  int64_t i = 0;
  for (const int64_t head = elements_to_line(halves, count); i < head; ++i) {
    halves[i] = Conversion::one(values[i]);
  }
  const bool streams = count * int64_t{sizeof(uint16_t)} >= kStreamedBytes;
  for (; i + 32 <= count; i += 32) {
    const __m256i low = Conversion::pack(_mm512_loadu_ps(values + i));
    const __m256i high = Conversion::pack(_mm512_loadu_ps(values + i + 16));
    const __m512i line = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
    if (streams) {
      _mm512_stream_si512(reinterpret_cast<__m512i*>(halves + i), line);
    } else {
      _mm512_storeu_si512(halves + i, line);
    }
  }
  if (streams) _mm_sfence();
  for (; i < count; ++i) halves[i] = Conversion::one(values[i]);
}

template <typename Conversion>
MILLRACE_AVX512 void avx512_widen(const uint16_t* halves, int64_t count, float* values) {
  int64_t i = 0;
  for (const int64_t head = elements_to_line(values, count); i < head; ++i) {
    values[i] = Conversion::one(halves[i]);
  }
  const bool streams = count * int64_t{sizeof(float)} >= kStreamedBytes;
  for (; i + 16 <= count; i += 16) {
    const __m256i packed = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(halves + i));
    const __m512 line = Conversion::unpack(packed);
    if (streams) {
      _mm512_stream_ps(values + i, line);
    } else {
      _mm512_storeu_ps(values + i, line);
    }
  }
  if (streams) _mm_sfence();
  for (; i < count; ++i) values[i] = Conversion::one(halves[i]);
}

constexpr HalfFunctions kAvx512 = {avx512_narrow<ToF16>, avx512_narrow<ToBf16>,
                                   avx512_widen<FromF16>, avx512_widen<FromBf16>};

#endif

#if defined(__x86_64__)
// Not every compiler's __builtin_cpu_supports knows it.
bool has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

const HalfFunctions& best() {
  static const HalfFunctions functions = half_functions().back();
  return functions;
}

}  // namespace

std::vector<HalfFunctions> half_functions() {
  std::vector<HalfFunctions> functions = {kPlain};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && has_f16c()) functions.push_back(kAvx2);
  if (__builtin_cpu_supports("avx512f")) functions.push_back(kAvx512);
#endif
  return functions;
}

void floats_to_f16(const float* values, int64_t count, uint16_t* halves) {
  best().floats_to_f16(values, count, halves);
}

void floats_to_bf16(const float* values, int64_t count, uint16_t* halves) {
  best().floats_to_bf16(values, count, halves);
}

void f16_to_floats(const uint16_t* halves, int64_t count, float* values) {
  best().f16_to_floats(halves, count, values);
}

void bf16_to_floats(const uint16_t* halves, int64_t count, float* values) {
  best().bf16_to_floats(halves, count, values);
}

}  // namespace millrace
