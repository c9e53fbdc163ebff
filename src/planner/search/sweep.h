// One question asked for many values of one number: how a job scales.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "planner/search/question.h"

namespace millrace::planner {

struct SweepAxis {
  enum class Kind : uint8_t { devices, batch, bandwidth };
  Kind kind = Kind::devices;
  std::vector<double> values;  // at least one, above 0
};

// "devices=1..64" doubles from 1 to 64, "devices=8..64/8" goes in steps of 8, "batch=16,32,48" is a
// list. "bandwidth" is in bytes per second. Throws InputError naming `flag`.
SweepAxis parse_sweep(std::string_view text, std::string_view flag);

struct SweepPoint {
  double value = 0;
  int devices = 0;
  PlanAnswer answer;
  // Samples per second and device, over those of the first point that fits.
  double efficiency = 0;
};

// Throws InputError naming `flag` where a value makes no sense.
std::vector<SweepPoint> sweep(const PlanQuestion& question, const SweepAxis& axis,
                              std::string_view flag);

// Money for so many samples with devices at this price; 0 where nothing fits.
double cost_of(double samples, const PlanAnswer& answer, int devices, double price_per_hour);

// {"over", "points": [{"value", "devices", "fits", "shape", "predicted_...", "efficiency",
// "peak_bytes", with a price "epoch_cost"}]}; price 0: none.
Json describe(const SweepAxis& axis, const std::vector<SweepPoint>& points, double price);

// The same for people, and as comma-separated values with a header.
std::string format_sweep(const Json& described);
std::string sweep_csv(const Json& described);

}  // namespace millrace::planner
