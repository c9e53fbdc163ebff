// How far off a prediction may be, by how far off others of its kind were.
#pragma once

#include <string>
#include <vector>

#include "planner/published/left_out.h"

namespace millrace::planner {

inline constexpr double kIntervalShare = 0.8;

// The time is predicted to lie from `low` to `high` times the predicted one, with a share of
// kIntervalShare; `unlike` names what nobody has measured, `rows` how many errors that rests on.
struct TimeInterval {
  double low = 1, high = 1;
  std::vector<LeftOut> unlike;
  size_t rows = 0;

  bool holds(double logarithm) const;  // of predicted over true seconds
};

// The band around a prediction, as a logarithm: of each group the one that holds the share of its
// errors, and of these the one that holds the share of the groups, one more counted beyond all of
// them. Rows of a group err alike: few groups make a wide band.
double band_of(LeftOut kind, const std::vector<HeldOutError>& errors);

// What is known of a job: each is empty or a group of the published rows.
struct JobKind {
  std::string system, device, model;
};

// By the errors on rows that were alike in what this job is unlike all of them: a system, a cluster
// or a model that no published row has; bands of several add up as squares.
TimeInterval interval_for(const JobKind& job, const std::vector<HeldOutError>& errors);

// Of the errors that the interval rests on.
FitQuality errors_like(const TimeInterval& interval, const std::vector<HeldOutError>& errors);

// How many errors of one kind lie in the band that the other groups give.
size_t held_by_others(LeftOut kind, const std::vector<HeldOutError>& errors);

// "80 % interval 90 to 130 samples/s: no published row has this model."
std::string interval_sentence(const TimeInterval& interval, double samples_per_second);
Json describe(const TimeInterval& interval, double seconds, double samples_per_second);

}  // namespace millrace::planner
