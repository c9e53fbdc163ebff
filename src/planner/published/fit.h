// Fits the cost constants to some of the published rows and says how well all are predicted.
#pragma once

#include <string>
#include <vector>

#include "planner/published/rows.h"

namespace millrace::planner {

// Whether any constant of this system is fitted.
bool is_fitted(std::string_view system);

struct RowError {
  size_t row;
  double predicted_seconds;
  double published_seconds;
  std::vector<double> predicted_memory;  // bytes on a device of each stage

  // Above 0: predicted too long.
  double relative() const { return predicted_seconds / published_seconds - 1; }
};

struct FitQuality {
  double median = 0;
  double worst = 0;
  size_t rows = 0;
};

// Of relative errors without their sign.
FitQuality quality_of(const std::vector<double>& errors);

// By the constants of the system that was measured.
Prediction predict_row(const PublishedTables& tables, const PublishedRow& row,
                       const CostConstants& constants);

// All rows with a published time, or only those that the fit has (not) seen.
enum class Rows : uint8_t { all, fitted, unseen };

std::vector<RowError> errors_of(const PublishedTables& tables, const CostConstants& constants,
                                Rows which = Rows::all);

FitQuality quality_of(const PublishedTables& tables, const std::vector<RowError>& errors,
                      Rows which);

// The same of the memory, device by device as published.
FitQuality memory_quality_of(const PublishedTables& tables, const std::vector<RowError>& errors,
                             Rows which);

// How much of rates above V100's counts, by the rates of other architectures but those of one
// system ("": none is left out).
double fit_beyond(const PublishedTables& tables, CostConstants constants,
                  std::string_view without = "");

// Least squares over the fitted rows, with each free constant of `start` held near its value there
// as firmly as its spread is small. Deterministic.
CostConstants fit_constants(const CostConstants& start);

// The same to the rows of these tables that are marked, without a judgement.
CostConstants fit_constants(const CostConstants& start, const PublishedTables& tables);

}  // namespace millrace::planner
