// planning MODEL MEMORY: the largest batch that fits a device of so many MiB, for one device and
// for four, and what it costs. Nothing is trained.
#include <millrace/millrace.h>

#include <cstdio>
#include <cstdlib>

using namespace millrace;

int main(int count, char** arguments) {
  if (count != 3) return std::fputs("usage: planning MODEL MEBIBYTES\n", stderr), 2;
  const int64_t memory = std::atoll(arguments[2]) << 20;
  const api::Model net(arguments[1]);
  const api::Data images("synthetic");
  for (const int devices : {1, 4}) {
    int64_t best = 0;
    for (int64_t batch = 1; batch <= 1024; batch *= 2) {
      const api::Job job(net, images.train(), {}, {.batch = batch, .steps = 1, .devices = devices});
      const api::Plan plan = job.plan(memory);
      if (!plan.fits()) break;
      best = batch;
      std::printf("%d x %ld: %ld MiB, %.3f s per step\n", devices, long(batch),
                  long(plan.peak_bytes() >> 20), plan.seconds_per_step());
    }
    std::printf("%d devices: batch %ld each\n", devices, long(best));
  }
}
