#include "kernels/processor.h"

#include <oneapi/dnnl/dnnl.hpp>

namespace millrace {
namespace {

// Each set of instructions is a set of bits that contains those of the sets below it.
bool has(dnnl::cpu_isa wanted) {
  const auto bits = static_cast<unsigned>(wanted);
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & bits) == bits;
}

}  // namespace

bool has_native_bf16() { return has(dnnl::cpu_isa::avx512_core_bf16); }

bool can_compute_bf16() { return has(dnnl::cpu_isa::avx512_core); }

}  // namespace millrace
