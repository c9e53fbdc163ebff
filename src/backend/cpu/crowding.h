// How the threads of a team wait for each other on a machine that others use too.
//
// They look again and again whether the others are there, for some milliseconds. Nothing is faster
// alone, but beside busy neighbours it takes the processor from the very thread that is waited for.
// While others are at work, threads should sleep after some microseconds.
#pragma once

#include <sys/types.h>

#include <memory>

namespace millrace::backend {

// Whether a thread has to share its processor, by how long it was ready to run and did not. What
// the system itself does now and then is no crowd.
class CrowdRule {
 public:
  // Told of one interval after the other, in seconds. True once a tenth of about the last quarter
  // of a second was lost, and until less than a thirtieth is.
  bool crowded_after(double interval, double delayed);

 private:
  bool crowded_ = false;
  double lost_ = 0;  // share of the time, the latest counting most
};

// While one lives, the teams of this process sleep soon: threads without work, so many that the
// process has more than the machine has processors, which is when libgomp does so by itself.
class IdleTeam {
 public:
  IdleTeam();
  ~IdleTeam();
  IdleTeam(const IdleTeam&) = delete;
  IdleTeam& operator=(const IdleTeam&) = delete;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Watches a thread of this process from one of its own, and keeps an idle team while it is crowded.
// Ends before the thread does. Does nothing where the system does not tell of delays.
class CrowdWatch {
 public:
  explicit CrowdWatch(pid_t thread);
  ~CrowdWatch();
  CrowdWatch(const CrowdWatch&) = delete;
  CrowdWatch& operator=(const CrowdWatch&) = delete;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace::backend
