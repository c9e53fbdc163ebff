#include "planner/published/fit.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/median.h"

namespace millrace::planner {
namespace {

constexpr double kTolerance = 0.025;  // an error of a row's time that counts as one
constexpr double kMemoryTolerance = 0.08;
constexpr double kStep = 1e-3;  // of a logarithm, for derivatives
constexpr int kIterations = 60;
constexpr double kEnough = 1e-5;  // stop when a step gains no more than this

using Vector = std::vector<double>;

// Solves a x = b for a symmetric positive a.
Vector solve(std::vector<Vector> a, Vector b) {
  const size_t n = b.size();
  for (size_t i = 0; i < n; ++i) {
    for (size_t row = i + 1; row < n; ++row) {
      const double factor = a[row][i] / a[i][i];
      for (size_t column = i; column < n; ++column) a[row][column] -= factor * a[i][column];
      b[row] -= factor * b[i];
    }
  }
  for (size_t i = n; i-- > 0;) {
    for (size_t column = i + 1; column < n; ++column) b[i] -= a[i][column] * b[column];
    b[i] /= a[i][i];
  }
  return b;
}

class Fit {
 public:
  Fit(const CostConstants& start, PublishedTables tables)
      : start_(start), tables_(std::move(tables)), free_(start.free) {
    shift_.assign(free_.size(), 0);
  }

  CostConstants run() {
    Vector residuals = residuals_at(shift_);
    double damping = 1;
    for (int i = 0; i < kIterations; ++i) {
      const std::vector<Vector> slopes = slopes_at(residuals);
      const double before = norm(residuals);
      for (int attempt = 0; attempt < 8; ++attempt) {
        const Vector candidate = moved(slopes, residuals, damping);
        const Vector there = residuals_at(candidate);
        if (norm(there) < norm(residuals)) {
          shift_ = candidate;
          residuals = there;
          damping = std::max(damping / 4, 1e-6);
          break;
        }
        damping *= 4;
      }
      if (norm(residuals) > before * (1 - kEnough)) break;
    }
    return shifted(shift_);
  }

 private:
  CostConstants shifted(const Vector& shift) const {
    CostConstants constants = start_;
    for (const ConstantField& field : fields_of(constants)) {
      for (size_t i = 0; i < free_.size(); ++i) {
        const std::vector<std::string>& names = free_[i].names;
        if (std::find(names.begin(), names.end(), field.name) == names.end()) continue;
        *field.value *= std::exp(shift[i]);
      }
      if (field.name.ends_with(".overlap")) *field.value = std::min(*field.value, 1.0);
    }
    return constants;
  }

  Vector residuals_at(const Vector& shift) {
    const CostConstants constants = shifted(shift);
    cut_again(tables_, constants);
    Vector residuals;
    for (const RowError& error : errors_of(tables_, constants, Rows::fitted)) {
      residuals.push_back(std::log(error.predicted_seconds / error.published_seconds) / kTolerance);
      const std::vector<double>& published = tables_.rows[error.row].memory_mib;
      for (size_t stage = 0; stage < published.size(); ++stage) {
        const double predicted = error.predicted_memory.at(stage) / kMebibyte;
        residuals.push_back(std::log(predicted / published[stage]) / kMemoryTolerance);
      }
    }
    for (const CalibrationRow& calibration : tables_.calibration) {
      const PublishedRow& row = calibration.row;
      const Prediction prediction = predict_row(tables_, row, constants);
      residuals.push_back(std::log(prediction.seconds_per_step / *row.seconds_per_step) /
                          calibration.tolerance);
    }
    for (size_t i = 0; i < free_.size(); ++i) residuals.push_back(shift[i] / free_[i].spread);
    return residuals;
  }

  std::vector<Vector> slopes_at(const Vector& residuals) {
    std::vector<Vector> slopes;
    for (size_t i = 0; i < free_.size(); ++i) {
      Vector shift = shift_;
      shift[i] += kStep;
      Vector there = residuals_at(shift);
      for (size_t j = 0; j < there.size(); ++j) there[j] = (there[j] - residuals[j]) / kStep;
      slopes.push_back(std::move(there));
    }
    return slopes;
  }

  Vector moved(const std::vector<Vector>& slopes, const Vector& residuals, double damping) const {
    const size_t n = free_.size();
    std::vector<Vector> normal(n, Vector(n, 0));
    Vector right(n, 0);
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < n; ++j) {
        for (size_t k = 0; k < residuals.size(); ++k) normal[i][j] += slopes[i][k] * slopes[j][k];
      }
      for (size_t k = 0; k < residuals.size(); ++k) right[i] -= slopes[i][k] * residuals[k];
      normal[i][i] *= 1 + damping;
      normal[i][i] += 1e-9;
    }
    Vector shift = solve(std::move(normal), std::move(right));
    for (size_t i = 0; i < n; ++i) shift[i] += shift_[i];
    return shift;
  }

  static double norm(const Vector& values) {
    double sum = 0;
    for (const double value : values) sum += value * value;
    return sum;
  }

  const CostConstants& start_;
  PublishedTables tables_;
  const std::vector<FreeConstant>& free_;
  Vector shift_;  // of the logarithm of each free constant
};

bool belongs(const PublishedRow& row, Rows which) {
  return which == Rows::all || row.fitted == (which == Rows::fitted);
}

}  // namespace

FitQuality quality_of(const std::vector<double>& errors) {
  return {median(errors), quantile(errors, 1), errors.size()};
}

Prediction predict_row(const PublishedTables& tables, const PublishedRow& row,
                       const CostConstants& constants) {
  return predict(
      {tables.network(row), tables.cluster(row), constants, constants.system(row.system, "system")},
      row.job);
}

bool is_fitted(std::string_view system) {
  const std::string prefix = std::string(system) + ".";
  const CostConstants start = unfitted_constants();
  return std::any_of(start.free.begin(), start.free.end(), [&](const FreeConstant& constant) {
    return std::any_of(constant.names.begin(), constant.names.end(),
                       [&](const std::string& name) { return name.starts_with(prefix); });
  });
}

std::vector<RowError> errors_of(const PublishedTables& tables, const CostConstants& constants,
                                Rows which) {
  std::vector<RowError> errors;
  for (size_t i = 0; i < tables.rows.size(); ++i) {
    const PublishedRow& row = tables.rows[i];
    if (!row.seconds_per_step || !belongs(row, which)) continue;
    const Prediction prediction = predict_row(tables, row, constants);
    errors.push_back(
        {i, prediction.seconds_per_step, *row.seconds_per_step, prediction.device_memory});
  }
  return errors;
}

FitQuality quality_of(const PublishedTables& tables, const std::vector<RowError>& errors,
                      Rows which) {
  Vector sizes;
  for (const RowError& error : errors) {
    if (belongs(tables.rows[error.row], which)) sizes.push_back(std::abs(error.relative()));
  }
  return quality_of(sizes);
}

FitQuality memory_quality_of(const PublishedTables& tables, const std::vector<RowError>& errors,
                             Rows which) {
  Vector sizes;
  for (const RowError& error : errors) {
    const PublishedRow& row = tables.rows[error.row];
    if (!belongs(row, which)) continue;
    for (size_t stage = 0; stage < row.memory_mib.size(); ++stage) {
      const double predicted = error.predicted_memory.at(stage) / kMebibyte;
      sizes.push_back(std::abs(predicted / row.memory_mib[stage] - 1));
    }
  }
  return quality_of(sizes);
}

CostConstants fit_constants(const CostConstants& start, const PublishedTables& tables) {
  CostConstants constants = Fit(start, tables).run();
  constants.free.clear();
  return constants;
}

double fit_beyond(const PublishedTables& tables, CostConstants constants,
                  std::string_view without) {
  constexpr double kLeast = 0.2, kMost = 1, kFine = 1e-3;
  const auto squares = [&](double beyond) {
    constants.operators.beyond = beyond;
    double sum = 0;
    for (const PublishedRow& row : tables.elsewhere) {
      if (row.system == without) continue;
      const Prediction prediction = predict_row(tables, row, constants);
      sum += std::pow(std::log(prediction.seconds_per_step / *row.seconds_per_step), 2);
    }
    return sum;
  };
  double low = kLeast, high = kMost;
  while (high - low > kFine) {  // one valley: more is faster
    const double left = low + (high - low) / 3, right = high - (high - low) / 3;
    if (squares(left) < squares(right)) {
      high = right;
    } else {
      low = left;
    }
  }
  return (low + high) / 2;
}

CostConstants fit_constants(const CostConstants& start) {
  CostConstants constants = fit_constants(start, published_tables(start));
  constants.operators.beyond = fit_beyond(published_tables(start), constants);
  const PublishedTables tables = published_tables(constants);
  const FitQuality unseen =
      quality_of(tables, errors_of(tables, constants, Rows::unseen), Rows::unseen);
  constants.median_error = unseen.median;
  constants.worst_error = unseen.worst;
  return constants;
}

}  // namespace millrace::planner
