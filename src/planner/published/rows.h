// Published measurements of training jobs, and the planned jobs that stand for them.
//
// The tables are data/published_training.csv, published_heads.csv and calibration.csv. A row
// without a result has none here either: its prediction can only be shown.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "planner/cost/prediction.h"

namespace millrace::planner {

// Published memory is given in these.
inline constexpr double kMebibyte = 1024.0 * 1024.0;

struct PublishedRow {
  std::string system;   // name of the software's constants
  std::string family;   // rows of one family are compared with each other
  std::string label;    // the configuration, for people
  std::string cluster;  // name of a built-in cluster
  std::string model;
  models::ModelOptions options;
  PlannedJob job;  // stages complete
  std::optional<double> seconds_per_step;
  std::vector<double> memory_mib;  // of a device of each stage, as far as published
  bool published_not_to_fit = false;
  bool fitted = false;          // the constants were fitted to this row
  bool cut_by_profile = false;  // its authors cut it by a profile, the tables do by the constants
};

// What others measured on one device of a kind that the tables have, with other software or other
// batches: every fit sees these rows, none is judged by them.
struct CalibrationRow {
  PublishedRow row;
  double tolerance = 0.1;  // relative, of which the software alone may be the cause
};

// All rows with their networks and clusters, which are shared by rows.
struct PublishedTables {
  std::vector<PublishedRow> rows;
  std::vector<CalibrationRow> calibration;
  std::vector<PublishedRow> elsewhere;  // on devices of other architectures; no fit sees them
  std::map<std::string, NetworkWork> networks;
  std::map<std::string, simulate::Cluster> clusters;

  const NetworkWork& network(const PublishedRow& row) const;
  const simulate::Cluster& cluster(const PublishedRow& row) const;
};

// `constants` decide where a pipeline that its authors cut by a profile is cut.
PublishedTables published_tables(const CostConstants& constants);

// Cuts those pipelines anew.
void cut_again(PublishedTables& tables, const CostConstants& constants);

}  // namespace millrace::planner
