// How much of the time the devices of a pipeline stand idle, measured on devices that wait for a
// set time instead of computing.
//
//   pipeline_bubble [milliseconds of a forward, 50]
//
// Exits with 1 unless gpipe and 1f1b-flush are within 5 points of (p-1)/(m+p-1), and zero-bubble is
// at most half of that and half of what 1f1b-flush was measured with.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <exception>

#include "parallel/simulation.h"
#include "waiting_stages.h"

namespace {

double simulated_bubble(const millrace::WaitingJob& job) {
  const auto schedule = millrace::parallel::make_schedule(
      {.kind = job.schedule, .stages = job.stages, .micro_batches = job.micro_batches});
  return millrace::parallel::simulate(schedule, millrace::parallel::channels_between(schedule))
      .bubble_of_total();
}

bool measure(int stages, int64_t micro_batches, double seconds) {
  using millrace::parallel::ScheduleKind;
  const double formula =
      (stages - 1.0) / (static_cast<double>(micro_batches) + static_cast<double>(stages) - 1);
  double flush = 0;
  bool all_met = true;
  for (ScheduleKind kind :
       {ScheduleKind::gpipe, ScheduleKind::one_f_one_b_flush, ScheduleKind::zero_bubble}) {
    const millrace::WaitingJob job = {kind, stages, micro_batches, 1, seconds};
    const double measured = millrace::run_waiting(job).bubble;
    if (kind == ScheduleKind::one_f_one_b_flush) flush = measured;
    const bool met = kind == ScheduleKind::zero_bubble ? measured <= std::min(flush, formula) / 2
                                                       : std::abs(measured - formula) <= 0.05;
    all_met = all_met && met;
    fmt::print("{:<11} {:>6} {:>13} {:>8.1f} % {:>9.1f} % {:>8.1f} %  {}\n", name_of(kind), stages,
               micro_batches, 100 * measured, 100 * simulated_bubble(job), 100 * formula,
               met ? "met" : "MISSED");
  }
  return all_met;
}

}  // namespace

int main(int count, char** arguments) {
  try {
    const double seconds = (count > 1 ? std::atof(arguments[1]) : 50) / 1000;
    fmt::print("schedule    stages micro-batches measured   simulated (p-1)/(m+p-1)\n");
    bool met = true;
    for (int stages : {4, 8}) {
      for (int64_t micro_batches : {8, 16}) met = measure(stages, micro_batches, seconds) && met;
    }
    return met ? 0 : 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
