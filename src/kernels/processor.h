// What the processor can do, as far as oneDNN may use it (ONEDNN_MAX_CPU_ISA limits it).
#pragma once

#include <cstdint>
#include <string>

namespace millrace::kernels {

// Whether it multiplies bf16 by instructions of its own.
bool has_native_bf16();

// Whether products of bf16 can be had at all: without such instructions, slowly.
bool can_compute_bf16();

// The widest vectors that own loops may use.
enum class VectorInstructions : uint8_t { none, avx2, avx512 };
VectorInstructions vector_instructions();

// Of loops compiled for both, those for the widest vectors that may be used here; null if none may.
template <typename Loops>
const Loops* widest_loops(const Loops& (*avx512)(), const Loops& (*avx2)()) {
  const VectorInstructions widest = vector_instructions();
  if (widest == VectorInstructions::none) return nullptr;
  return widest == VectorInstructions::avx512 ? &avx512() : &avx2();
}

// The model as its maker calls it; "unknown processor" where the system does not tell.
std::string processor_name();

// The model, the instructions in use and oneDNN's version: what measured times hold for.
std::string processor_description();

}  // namespace millrace::kernels
