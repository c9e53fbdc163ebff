#include "planner/search/sweep.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "base/error.h"
#include "base/text.h"

namespace millrace::planner {
namespace {

constexpr std::string_view kAxisNames[] = {"devices", "batch", "bandwidth"};
constexpr size_t kMostPoints = 1000;
constexpr double kSecondsPerHour = 3600;

double value_of(std::string_view text, std::string_view whole, std::string_view flag) {
  const std::string copy(text);
  char* end = nullptr;
  const double value = std::strtod(copy.c_str(), &end);
  if (copy.empty() || *end != '\0' || !(value > 0) || !(value <= 1e15)) {
    fail_input(
        "{} is '{}', where '{}' is no number above 0; give devices=1..64, batch=8..64/8 or "
        "bandwidth=1e9,1e10.",
        flag, whole.substr(0, 60), copy.substr(0, 30));
  }
  return value;
}

std::vector<double> values_of(std::string_view text, std::string_view flag) {
  const size_t dots = text.find("..");
  std::vector<double> values;
  if (dots == std::string_view::npos) {
    for (const std::string& one : split(text, ',')) values.push_back(value_of(one, text, flag));
    return values;
  }
  const size_t slash = text.find('/', dots);
  const double from = value_of(text.substr(0, dots), text, flag);
  const double to = value_of(text.substr(dots + 2, slash - dots - 2), text, flag);
  const bool even = slash != std::string_view::npos;
  const double step = even ? value_of(text.substr(slash + 1), text, flag) : 0;
  for (double value = from; value <= to * (1 + 1e-12); value = even ? value + step : 2 * value) {
    values.push_back(value);
    if (values.size() > kMostPoints) {
      fail_input("{} has more than {} values; use larger steps.", flag, kMostPoints);
    }
  }
  if (values.empty()) fail_input("{} goes from {:g} to {:g}, where nothing is.", flag, from, to);
  if (values.back() < to) values.push_back(to);
  return values;
}

PlanQuestion question_at(const PlanQuestion& question, SweepAxis::Kind kind, double value,
                         std::string_view flag) {
  switch (kind) {
    case SweepAxis::Kind::devices:
      return with_devices(question, static_cast<int>(value), flag);
    case SweepAxis::Kind::batch:
      return with_batch(question, value);
    case SweepAxis::Kind::bandwidth:
      return with_bandwidth(question, value);
  }
  return question;
}

std::string cell(const Json& value) {
  return value.is_null() ? "" : value.dump();  // a text keeps its quotes
}

}  // namespace

SweepAxis parse_sweep(std::string_view text, std::string_view flag) {
  const size_t equals = text.find('=');
  for (size_t i = 0; i < std::size(kAxisNames); ++i) {
    if (text.substr(0, equals) != kAxisNames[i] || equals == std::string_view::npos) continue;
    SweepAxis axis{static_cast<SweepAxis::Kind>(i), values_of(text.substr(equals + 1), flag)};
    for (const double value : axis.values) {
      if (axis.kind == SweepAxis::Kind::bandwidth) continue;
      if (value == std::floor(value) && value <= 1e6) continue;
      fail_input("{} has {:g}, but {} are whole numbers up to a million.", flag, value,
                 kAxisNames[i]);
    }
    return axis;
  }
  fail_input("{} is '{}'; give devices=1..64, batch=8..64/8 or bandwidth=1e9,1e10.", flag,
             text.substr(0, 60));
}

std::vector<SweepPoint> sweep(const PlanQuestion& question, const SweepAxis& axis,
                              std::string_view flag) {
  std::vector<SweepPoint> points;
  double first = 0;
  for (const double value : axis.values) {
    const PlanQuestion changed = question_at(question, axis.kind, value, flag);
    SweepPoint point{value, changed.devices(), answer(changed)};
    const double each = point.answer.samples_per_second / point.devices;
    if (first == 0) first = each;
    point.efficiency = first > 0 ? each / first : 0;
    points.push_back(std::move(point));
  }
  return points;
}

double cost_of(double samples, const PlanAnswer& answer, int devices, double price_per_hour) {
  if (!(answer.samples_per_second > 0)) return 0;
  return samples / answer.samples_per_second / kSecondsPerHour * devices * price_per_hour;
}

Json describe(const SweepAxis& axis, const std::vector<SweepPoint>& points, double price) {
  Json json = {{"over", kAxisNames[static_cast<size_t>(axis.kind)]}, {"points", Json::array()}};
  for (const SweepPoint& point : points) {
    Json one = {{"value", point.value},
                {"devices", point.devices},
                {"fits", point.answer.fits},
                {"shape", point.answer.shape}};
    const bool any = point.answer.samples_per_second > 0;
    const auto number = [&](double value) { return any ? Json(value) : Json(); };
    one["predicted_seconds_per_step"] = number(point.answer.seconds_per_step);
    one["predicted_samples_per_second"] = number(point.answer.samples_per_second);
    one["predicted_epoch_seconds"] = number(kImagesOfEpoch / point.answer.samples_per_second);
    one["efficiency"] = number(point.efficiency);
    one["peak_bytes"] = any ? Json(static_cast<uint64_t>(point.answer.memory)) : Json();
    if (price > 0) {
      one["epoch_cost"] = number(cost_of(kImagesOfEpoch, point.answer, point.devices, price));
    }
    json["points"].push_back(std::move(one));
  }
  return json;
}

std::string format_sweep(const Json& described) {
  const Json& points = described["points"];
  const bool priced = points.front().contains("epoch_cost");
  // Of one device, with more of them; else how many times as fast as the first row.
  const bool scales =
      described["over"] == kAxisNames[static_cast<size_t>(SweepAxis::Kind::devices)];
  std::string text =
      fmt::format("{:>11} {:>9} {:>12} {:>10} {:>12}{}  plan\n",
                  described["over"].get<std::string>(), "devices", "samples/s",
                  scales ? "efficiency" : "times", "a device", priced ? "    an epoch" : "");
  for (const Json& one : points) {
    text += fmt::format("{:>11.6g} {:>9} ", one["value"].get<double>(), one["devices"].get<int>());
    if (one["predicted_samples_per_second"].is_null()) {
      text += fmt::format("{:>12}  {}\n", "none fits", one["shape"].get<std::string>());
      continue;
    }
    const double efficiency = one["efficiency"].get<double>();
    text += fmt::format(
        "{:>12.1f} {} {:>12}", one["predicted_samples_per_second"].get<double>(),
        scales ? fmt::format("{:>8.1f} %", 100 * efficiency) : fmt::format("{:>10.2f}", efficiency),
        format_bytes(one["peak_bytes"].get<uint64_t>()));
    if (priced) text += fmt::format(" {:>11.2f}", one["epoch_cost"].get<double>());
    text += fmt::format("  {}{}\n", one["shape"].get<std::string>(),
                        one["fits"].get<bool>() ? "" : " (does not fit)");
  }
  return text;
}

std::string sweep_csv(const Json& described) {
  std::string text;
  for (const auto& [name, value] : described["points"].front().items()) {
    text += text.empty() ? described["over"].get<std::string>() + "_value" : "," + name;
  }
  for (const Json& one : described["points"]) {
    std::vector<std::string> cells;
    for (const Json& value : one) cells.push_back(cell(value));
    text += fmt::format("\n{}", fmt::join(cells, ","));
  }
  return text + "\n";
}

}  // namespace millrace::planner
