// Marks a function whose loops the compiler should also build for AVX2, chosen at run time. This
// layer is compiled without contraction of products and sums, so both give the same bits.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define MILLRACE_VECTORISE __attribute__((target_clones("avx2", "default")))
#else
#define MILLRACE_VECTORISE
#endif
