// How plain loops become vector code.
//
// A function marked MILLRACE_VECTORIZED is compiled for several instruction sets and the best one
// is picked when the program is loaded. Helpers that such a function calls must be
// MILLRACE_INLINE, so that they are compiled for the same set. In-place elementwise loops say
// `#pragma GCC ivdep`: an output may be an input, element for element, but never shifted.
#pragma once

// The sanitizers' run-time is not ready when the loader picks a version.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define MILLRACE_VECTORIZED __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define MILLRACE_VECTORIZED
#endif

#define MILLRACE_INLINE inline __attribute__((always_inline))
