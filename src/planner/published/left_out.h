// Errors on published rows of a kind that a fit has not seen: of another system, on another
// cluster or architecture, of another model.
#pragma once

#include <string>
#include <vector>

#include "planner/published/fit.h"

namespace millrace::planner {

enum class LeftOut : uint8_t {
  nothing,  // rows of kinds that were fitted, but not these rows
  model,
  cluster,  // by its devices
  system,
  architecture,  // rates of devices whose architecture no other row has, by those of V100 alone
  pair,          // the same by those of other systems on that architecture too
};

inline constexpr LeftOut kLeftOut[] = {LeftOut::nothing, LeftOut::model, LeftOut::cluster,
                                       LeftOut::system};

std::string_view name_of(LeftOut kind);

struct HeldOutError {
  LeftOut kind = LeftOut::nothing;
  std::string group;                // that was left out; of `nothing` the row itself
  double logarithm = 0;             // of predicted over published seconds
  std::vector<double> memory = {};  // the same of published memory, where it was found just now
};

// Whether devices are built like one that the published rows have (Volta's).
bool is_known_architecture(std::string_view device);

// The group of a row that is left out together.
std::string group_of(LeftOut kind, const PublishedTables& tables, const PublishedRow& row);

// Fits to all rows but those of each group in turn, calibration without it too, and predicts the
// rows of the group; `nothing`: fits to the marked rows, and predicts the others; `architecture`:
// predicts the rates of other architectures by constants of V100 alone; `pair`: by how much of them
// the other systems reach, too.
std::vector<HeldOutError> leave_out(const CostConstants& start);

// As data/held_out_errors.csv has them, and back.
std::string to_csv(const std::vector<HeldOutError>& errors);
std::vector<HeldOutError> kept_held_out_errors();

// How far predictions from profiles were off where they were checked against runs: relative errors
// without their sign, kept in data/checked_predictions.csv.
std::vector<double> checked_errors();

}  // namespace millrace::planner
