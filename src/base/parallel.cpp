#include "base/parallel.h"

#include <omp.h>

#include <algorithm>

#if defined(__SANITIZE_THREAD__)
extern "C" {
void __tsan_acquire(void* address);
void __tsan_release(void* address);
}
#endif

namespace millrace {
namespace {

// libgomp is not built with the thread sanitizer, which therefore cannot see that a team starts
// after its caller and ends before it goes on. These tell it so. The tags are shared by all teams,
// because a thread must observe its start before it reads anything its caller wrote.
[[maybe_unused]] char started = 0;
[[maybe_unused]] char finished = 0;

void publish([[maybe_unused]] char* tag) {
#if defined(__SANITIZE_THREAD__)
  __tsan_release(tag);
#endif
}

void observe([[maybe_unused]] char* tag) {
#if defined(__SANITIZE_THREAD__)
  __tsan_acquire(tag);
#endif
}

}  // namespace

int team_size() { return omp_get_max_threads(); }

void set_team_size(int threads) { omp_set_num_threads(threads); }

void end_team() { omp_pause_resource(omp_pause_soft, omp_get_initial_device()); }

namespace detail {

// The compiler hands the team what it needs in memory that is written after `started`, and libgomp
// takes care of that; what the sanitizer has to see is behind `function`.
__attribute__((no_sanitize("thread"))) void run_team(int64_t count, int64_t grain, void* context,
                                                     RangeFunction function) {
  const int threads = static_cast<int>(std::min<int64_t>(team_size(), count));
  if (count <= grain || threads <= 1) {
    if (count > 0) function(context, 0, 0, count);
    return;
  }
  publish(&started);
#pragma omp parallel num_threads(threads)
  {
    observe(&started);
    const int thread = omp_get_thread_num();
    const int team = omp_get_num_threads();
    const int64_t begin = count * thread / team;
    const int64_t end = count * (thread + 1) / team;
    if (begin < end) function(context, thread, begin, end);
    publish(&finished);
  }
  observe(&finished);
}

}  // namespace detail
}  // namespace millrace
