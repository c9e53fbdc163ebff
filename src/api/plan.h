// What a job will cost.
#pragma once

#include <cstdint>
#include <string>

#include "base/json.h"

namespace millrace::api {

// The exact memory and the predicted time of a job, known before its first step. Plain data: the
// object of `millrace plan --json`.
class Plan {
 public:
  explicit Plan(Json described) : described_(std::move(described)) {}
  // Throws InputError if the text is none of a plan.
  static Plan parse(const std::string& text);

  bool fits() const;
  // Of the device that needs the most.
  int64_t peak_bytes() const;
  double seconds_per_step() const;
  double samples_per_second() const;

  // As people read it, and as programs do.
  std::string text() const;
  std::string json() const;

 private:
  Json described_;
};

}  // namespace millrace::api
