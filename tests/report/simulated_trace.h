// Traces of simulated schedules, so that what a report says can be compared with formulas.
#pragma once

#include <cmath>

#include "parallel/simulation.h"
#include "runtime/trace.h"

namespace millrace::report {

// A millisecond per unit of time; gaps are waits for "activations" or "gradients" by what follows.
inline runtime::TraceLog simulated_trace(const parallel::ScheduleRequest& request) {
  const parallel::Schedule schedule = parallel::make_schedule(request);
  const parallel::Simulation simulation =
      parallel::simulate(schedule, parallel::channels_between(schedule));
  runtime::TraceLog log;
  const auto nanoseconds = [](double units) { return std::llround(units * 1e6) + 5'000; };
  for (size_t row = 0; row < simulation.rows.size(); ++row) {
    const int device = static_cast<int>(row);
    log.devices.push_back({0, device, schedule.rows[row].stage});
    double free = 0;
    for (const parallel::SimulatedTask& entry : simulation.rows[row]) {
      const bool forward = entry.task.work == parallel::Work::forward;
      if (entry.begin > free) {
        log.events.push_back({device, runtime::TraceCategory::wait,
                              forward ? "activations" : "gradients", -1, nanoseconds(free),
                              nanoseconds(entry.begin)});
      }
      free = entry.end;
      const runtime::TraceCategory category = entry.task.work == parallel::Work::update
                                                  ? runtime::TraceCategory::update
                                              : forward ? runtime::TraceCategory::forward
                                                        : runtime::TraceCategory::backward;
      log.events.push_back({device, category, std::string(parallel::name_of(entry.task.work)),
                            entry.task.micro_batch, nanoseconds(entry.begin),
                            nanoseconds(entry.end)});
    }
  }
  return log;
}

}  // namespace millrace::report
