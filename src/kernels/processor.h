// What the processor can do, as far as oneDNN may use it (ONEDNN_MAX_CPU_ISA limits it).
#pragma once

namespace millrace {

// Whether it multiplies bf16 by instructions of its own.
bool has_native_bf16();

// Whether products of bf16 can be had at all: without such instructions, slowly.
bool can_compute_bf16();

}  // namespace millrace
