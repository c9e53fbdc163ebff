// Loops over the calling thread's team.
//
// Every device thread has its own OpenMP team (oneDNN uses the same one), so a kernel that calls
// `parallel_for` uses exactly the cores of the device it runs on. Work is cut into equal
// contiguous ranges by thread number: which thread does what, and with it every sum, is fixed
// for a given team size.
#pragma once

#include <cstdint>
#include <type_traits>

namespace millrace {

// The number of threads in the calling thread's team.
int team_size();

// Sets it for the calling thread; called once by whoever owns the thread.
void set_team_size(int threads);

// Ends the other threads of the calling thread's team; its next loop starts them anew. OpenMP has
// its threads sleep at once, where they wait, while those of all teams are more than the cores. So
// a team of a thread that does nothing slows others down: in a process that trains here and
// computes elsewhere in turn, each gives its team up when the other's turn comes.
void end_team();

namespace detail {
using RangeFunction = void (*)(void* context, int thread, int64_t begin, int64_t end);
void run_team(int64_t count, int64_t grain, void* context, RangeFunction function);
}  // namespace detail

// Calls body(thread, begin, end) on each thread with its part of [0, count). Runs on the calling
// thread alone when count <= grain. The body must not throw.
template <typename Body>
void parallel_ranges(int64_t count, int64_t grain, Body&& body) {
  detail::run_team(count, grain, const_cast<void*>(static_cast<const void*>(&body)),
                   [](void* context, int thread, int64_t begin, int64_t end) {
                     (*static_cast<std::remove_reference_t<Body>*>(context))(thread, begin, end);
                   });
}

// Calls body(i) for each i in [0, count).
template <typename Body>
void parallel_for(int64_t count, int64_t grain, Body&& body) {
  parallel_ranges(count, grain, [&](int, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) body(i);
  });
}

}  // namespace millrace
