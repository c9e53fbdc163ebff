// The signs of life of a rank, as a plug-in gives and hears them.
#pragma once

#include <string>

namespace millrace::comm {

struct HeartbeatOptions {
  double interval = 1;  // seconds between beats
  double silence = 5;   // after which a rank counts as lost
  double start = 8;     // how long the first beat may take, once all have come here
};

// Begins and ends with the object, which ends as `leave` does. From any thread.
class Beats {
 public:
  virtual ~Beats() = default;
  virtual void set_activity(const std::string& what) = 0;
  // What another rank said it was doing; empty before its first beat.
  virtual std::string activity_of(int rank) = 0;
  virtual void fail(const std::string& reason) noexcept = 0;
  virtual void finish() = 0;
  // Without `finish`, `fail` or `abandon` before, the others are told that this rank left too
  // early.
  virtual void leave() noexcept = 0;
  // Nobody is told anything more: whatever ends this rank ends the others too.
  virtual void abandon() noexcept = 0;
};

}  // namespace millrace::comm
