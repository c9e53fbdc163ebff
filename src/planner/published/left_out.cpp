#include "planner/published/left_out.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <stdexcept>

#include "planner/data/table.h"

namespace millrace::planner {
namespace {

constexpr std::string_view kLeftOutNames[] = {"nothing", "model",        "cluster",
                                              "system",  "architecture", "system and architecture"};

void add_errors(const PublishedTables& tables, const CostConstants& constants, LeftOut kind,
                const std::string& group, std::vector<HeldOutError>& found) {
  for (const RowError& error : errors_of(tables, constants)) {
    const PublishedRow& row = tables.rows[error.row];
    const std::string own = group_of(kind, tables, row);
    if (kind == LeftOut::nothing ? row.fitted : own != group) continue;
    found.push_back({kind, own, std::log(error.predicted_seconds / error.published_seconds)});
    for (size_t stage = 0; stage < row.memory_mib.size(); ++stage) {
      const double predicted = error.predicted_memory.at(stage) / kMebibyte;
      found.back().memory.push_back(std::log(predicted / row.memory_mib[stage]));
    }
  }
}

}  // namespace

std::string_view name_of(LeftOut kind) { return kLeftOutNames[static_cast<size_t>(kind)]; }

bool is_known_architecture(std::string_view device) {
  return device.find("V100") != std::string_view::npos || device == "TITAN V";
}

std::string group_of(LeftOut kind, const PublishedTables& tables, const PublishedRow& row) {
  switch (kind) {
    case LeftOut::nothing:
      return fmt::format("{} {} {}", row.system, row.model, row.label);
    case LeftOut::model:
      return row.model;
    case LeftOut::cluster:
      return tables.cluster(row).device.name;
    case LeftOut::system:
      return row.system;
    case LeftOut::architecture:
    case LeftOut::pair:
      return tables.cluster(row).device.name;
  }
  throw std::logic_error("unknown kind of group");
}

std::vector<HeldOutError> leave_out(const CostConstants& start) {
  const PublishedTables all = published_tables(start);
  std::vector<HeldOutError> found;
  for (const LeftOut kind : kLeftOut) {
    std::set<std::string> groups;
    for (const PublishedRow& row : all.rows) {
      if (row.seconds_per_step) groups.insert(group_of(kind, all, row));
    }
    if (kind == LeftOut::nothing) groups = {""};
    for (const std::string& group : groups) {
      PublishedTables tables = all;
      for (PublishedRow& row : tables.rows) {
        if (kind == LeftOut::nothing) continue;
        row.fitted = row.seconds_per_step && group_of(kind, tables, row) != group;
      }
      std::erase_if(tables.calibration, [&](const CalibrationRow& calibration) {
        return group_of(kind, tables, calibration.row) == group;
      });
      const CostConstants constants = fit_constants(start, tables);
      cut_again(tables, constants);
      add_errors(tables, constants, kind, group, found);
    }
  }
  CostConstants constants = fit_constants(start, all);
  for (const LeftOut kind : {LeftOut::architecture, LeftOut::pair}) {
    for (const PublishedRow& row : all.elsewhere) {
      constants.operators.beyond =
          kind == LeftOut::pair ? fit_beyond(all, constants, row.system) : 1;
      const Prediction prediction = predict_row(all, row, constants);
      found.push_back({kind, group_of(kind, all, row),
                       std::log(prediction.seconds_per_step / *row.seconds_per_step)});
    }
  }
  return found;
}

std::string to_csv(const std::vector<HeldOutError>& errors) {
  std::string text = "left_out,group,logarithm\n";
  for (const HeldOutError& error : errors) {
    text += fmt::format("{},\"{}\",{:.4f}\n", name_of(error.kind), error.group, error.logarithm);
  }
  return text;
}

std::vector<HeldOutError> kept_held_out_errors() {
  std::vector<HeldOutError> errors;
  for (const TableRecord& record : embedded_table("held_out_errors.csv")) {
    const auto* kind =
        std::find(std::begin(kLeftOutNames), std::end(kLeftOutNames), record.at("left_out"));
    errors.push_back({static_cast<LeftOut>(kind - std::begin(kLeftOutNames)), record.at("group"),
                      std::stod(record.at("logarithm"))});
  }
  return errors;
}

std::vector<double> checked_errors() {
  std::vector<double> errors;
  for (const TableRecord& record : embedded_table("checked_predictions.csv")) {
    errors.push_back(std::stod(record.at("error")));
  }
  return errors;
}

}  // namespace millrace::planner
