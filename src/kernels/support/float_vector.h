// A vector of floats of any length, for code that is compiled for one instruction set a file.
// In an unnamed namespace, as such files must not share what they instantiate.
#pragma once

#include "base/vectorize.h"

namespace millrace::kernels {
namespace {

template <int kLanes>
struct FloatVector {
  using Type __attribute__((vector_size(kLanes * 4))) = float;
  using Unaligned __attribute__((vector_size(kLanes * 4), aligned(4), may_alias)) = float;

  static MILLRACE_INLINE Type load(const float* from) {
    return *reinterpret_cast<const Unaligned*>(from);
  }
  static MILLRACE_INLINE void store(float* to, const Type& value) {
    *reinterpret_cast<Unaligned*>(to) = value;
  }
};

}  // namespace
}  // namespace millrace::kernels
