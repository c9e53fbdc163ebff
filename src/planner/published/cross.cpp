#include "planner/published/cross.h"

#include <algorithm>
#include <cmath>

namespace millrace {
namespace {

size_t worst_of(const std::vector<RowError>& errors) {
  const auto worst =
      std::max_element(errors.begin(), errors.end(), [](const RowError& a, const RowError& b) {
        return std::abs(a.relative()) < std::abs(b.relative());
      });
  return worst == errors.end() ? 0 : worst->row;
}

bool within_bars(const CrossFit& fit) {
  return fit.unseen.median <= kMedianBar && fit.unseen.worst <= kWorstBar;
}

Json distribution(std::vector<double> values) {
  if (values.empty()) return nullptr;
  std::sort(values.begin(), values.end());
  const auto at = [&](double share) {
    return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1) + 0.5)];
  };
  return {{"least", at(0)}, {"middle", at(0.5)}, {"tenth", at(0.9)}, {"most", at(1)}};
}

}  // namespace

std::vector<CrossFit> cross_fit(const CostConstants& start, int halves, uint64_t first) {
  std::vector<CrossFit> fits;
  for (int i = 0; i < halves; ++i) {
    CrossFit fit;
    fit.seed = first + static_cast<uint64_t>(i);
    const FitSplit split{FitSplit::Kind::random, fit.seed};
    const CostConstants constants = fit_constants(start, split);
    const PublishedTables tables = published_tables(constants, split);
    const std::vector<RowError> errors = errors_of(tables, constants);
    fit.fitted = quality_of(tables, errors, Rows::fitted);
    fit.unseen = quality_of(tables, errors, Rows::unseen);
    fit.memory = memory_quality_of(tables, errors, Rows::unseen);
    fit.worst_row = worst_of(errors_of(tables, constants, Rows::unseen));
    fit.order = check_order(tables, errors);
    fit.fits = check_fits(tables, constants);
    fits.push_back(fit);
  }
  return fits;
}

double share_within_bars(const std::vector<CrossFit>& fits) {
  if (fits.empty()) return 0;
  const auto good = std::count_if(fits.begin(), fits.end(), within_bars);
  return static_cast<double>(good) / static_cast<double>(fits.size());
}

Json describe(const std::vector<CrossFit>& fits, const PublishedTables& tables) {
  Json json;
  json["halves"] = Json::array();
  std::vector<double> medians, worsts, memories;
  for (const CrossFit& fit : fits) {
    const PublishedRow& row = tables.rows.at(fit.worst_row);
    json["halves"].push_back({{"seed", fit.seed},
                              {"fitted", describe(fit.fitted)},
                              {"unseen", describe(fit.unseen)},
                              {"memory", describe(fit.memory)},
                              {"worst_row", row.system + " " + row.model + " " + row.label},
                              {"order_reversed", fit.order.reversed},
                              {"fits_wrong", fit.fits.known - fit.fits.right}});
    medians.push_back(fit.unseen.median);
    worsts.push_back(fit.unseen.worst);
    memories.push_back(fit.memory.worst);
  }
  json["median"] = distribution(std::move(medians));
  json["worst"] = distribution(std::move(worsts));
  json["memory"] = distribution(std::move(memories));
  json["within_bars"] = share_within_bars(fits);
  return json;
}

}  // namespace millrace
