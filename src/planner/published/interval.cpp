#include "planner/published/interval.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace millrace::planner {
namespace {

constexpr double kBeyond = 1.25;  // a band past the largest error, over that error

using Groups = std::map<std::string, std::vector<double>>;

Groups groups_of(LeftOut kind, const std::vector<HeldOutError>& errors) {
  Groups groups;
  for (const HeldOutError& error : errors) {
    if (error.kind == kind) groups[error.group].push_back(error.logarithm);
  }
  return groups;
}

// The place of the value that a share of `count` values reaches, from 1.
size_t place_of(double share, size_t count) {
  return static_cast<size_t>(std::ceil(share * static_cast<double>(count) - 1e-9));
}

double band_within(std::vector<double> logarithms) {
  for (double& value : logarithms) value = std::abs(value);
  std::sort(logarithms.begin(), logarithms.end());
  return logarithms.at(place_of(kIntervalShare, logarithms.size()) - 1);
}

bool is_known(LeftOut kind, const std::string& group, const std::vector<HeldOutError>& errors) {
  return std::any_of(errors.begin(), errors.end(), [&](const HeldOutError& error) {
    return error.kind == kind && error.group == group;
  });
}

bool any_of_kind(LeftOut kind, const std::vector<HeldOutError>& errors) {
  return std::any_of(errors.begin(), errors.end(),
                     [&](const HeldOutError& error) { return error.kind == kind; });
}

double band_of(const Groups& groups) {
  if (groups.empty()) return std::log(kBeyond);
  std::vector<double> bands;
  for (const auto& [name, logarithms] : groups) bands.push_back(band_within(logarithms));
  std::sort(bands.begin(), bands.end());
  const size_t place = place_of(kIntervalShare, bands.size() + 1);
  return place <= bands.size() ? bands[place - 1] : kBeyond * bands.back();
}

}  // namespace

bool TimeInterval::holds(double logarithm) const {
  return -logarithm >= std::log(low) && -logarithm <= std::log(high);
}

double band_of(LeftOut kind, const std::vector<HeldOutError>& errors) {
  return band_of(groups_of(kind, errors));
}

TimeInterval interval_for(const JobKind& job, const std::vector<HeldOutError>& errors) {
  TimeInterval interval;
  for (const auto& [kind, group] :
       {std::pair(LeftOut::model, &job.model), std::pair(LeftOut::cluster, &job.device),
        std::pair(LeftOut::system, &job.system)}) {
    if (is_known(kind, *group, errors)) continue;
    const bool elsewhere = kind == LeftOut::cluster && !is_known_architecture(job.device);
    interval.unlike.push_back(elsewhere && is_known(LeftOut::pair, *group, errors) ? LeftOut::pair
                              : elsewhere && any_of_kind(LeftOut::architecture, errors)
                                  ? LeftOut::architecture
                                  : kind);
  }
  std::vector<LeftOut> kinds = interval.unlike;
  if (kinds.empty()) kinds.push_back(LeftOut::nothing);
  double squares = 0;
  for (const LeftOut kind : kinds) {
    const double band = band_of(kind, errors);
    squares += band * band;
    for (const HeldOutError& error : errors) interval.rows += error.kind == kind ? 1 : 0;
  }
  interval.high = std::exp(std::sqrt(squares));
  interval.low = 1 / interval.high;
  return interval;
}

FitQuality errors_like(const TimeInterval& interval, const std::vector<HeldOutError>& errors) {
  const std::vector<LeftOut> kinds =
      interval.unlike.empty() ? std::vector<LeftOut>{LeftOut::nothing} : interval.unlike;
  std::vector<double> relative;
  for (const HeldOutError& error : errors) {
    if (std::find(kinds.begin(), kinds.end(), error.kind) == kinds.end()) continue;
    relative.push_back(std::abs(std::exp(error.logarithm) - 1));
  }
  return quality_of(std::move(relative));
}

size_t held_by_others(LeftOut kind, const std::vector<HeldOutError>& errors) {
  const Groups all = groups_of(kind, errors);
  size_t held = 0;
  for (const auto& [name, logarithms] : all) {
    Groups others = all;
    others.erase(name);
    const double band = band_of(others);
    for (const double value : logarithms) held += std::abs(value) <= band ? 1 : 0;
  }
  return held;
}

std::string interval_sentence(const TimeInterval& interval, double samples_per_second) {
  std::vector<std::string_view> unlike;
  for (const LeftOut kind : interval.unlike) unlike.push_back(name_of(kind));
  const auto rate = [](double value) {
    return value < 10 ? fmt::format("{:.2g}", value) : fmt::format("{:.1f}", value);
  };
  return fmt::format("{:.0f} % interval: {} to {} samples/s, from {} held-out errors of {}.",
                     kIntervalShare * 100, rate(samples_per_second / interval.high),
                     rate(samples_per_second / interval.low), interval.rows,
                     unlike.empty() ? std::string("rows like this")
                                    : fmt::format("rows whose {} the fit had not seen either",
                                                  fmt::join(unlike, " or ")));
}

Json describe(const TimeInterval& interval, double seconds, double samples_per_second) {
  Json json = {{"share", kIntervalShare},
               {"seconds_per_step", {seconds * interval.low, seconds * interval.high}},
               {"samples_per_second",
                {samples_per_second / interval.high, samples_per_second / interval.low}},
               {"rows", interval.rows},
               {"unlike", Json::array()}};
  for (const LeftOut kind : interval.unlike) json["unlike"].push_back(name_of(kind));
  return json;
}

}  // namespace millrace::planner
