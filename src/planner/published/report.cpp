#include "planner/published/report.h"

#include <algorithm>
#include <cmath>

namespace millrace::planner {
namespace {

Json in_mebibytes(const std::vector<double>& bytes) {
  Json sizes = Json::array();
  for (const double value : bytes) sizes.push_back(std::round(value / kMebibyte));
  return sizes;
}

Json describe_row(const PublishedTables& tables, const PublishedRow& row,
                  const CostConstants& constants) {
  const simulate::Cluster& cluster = tables.cluster(row);
  const NetworkWork& network = tables.network(row);
  const Prediction prediction = predict_row(tables, row, constants);
  const Prediction own =
      predict({network, cluster, constants, constants.system("millrace", "system")}, row.job);
  const double samples = row.job.samples_per_step();
  Json json = {{"system", row.system},   {"family", row.family}, {"configuration", row.label},
               {"cluster", row.cluster}, {"model", row.model},   {"fitted", row.fitted}};
  json["stages"] = format_stages(row.job.stages, cluster.devices_per_machine);
  json["published_seconds_per_step"] = nullptr;
  json["published_samples_per_second"] = nullptr;
  json["error"] = nullptr;
  if (row.seconds_per_step) {
    json["published_seconds_per_step"] = *row.seconds_per_step;
    json["published_samples_per_second"] = samples / *row.seconds_per_step;
    json["error"] = prediction.seconds_per_step / *row.seconds_per_step - 1;
  }
  json["predicted_seconds_per_step"] = prediction.seconds_per_step;
  json["predicted_samples_per_second"] = prediction.samples_per_second;
  json["predicted_epoch_seconds"] = prediction.epoch_seconds;
  json["published_memory_mib"] = row.memory_mib;
  json["predicted_memory_mib"] = in_mebibytes(prediction.device_memory);
  json["published_fits"] = row.published_not_to_fit ? Json(false)
                           : row.seconds_per_step   ? Json(true)
                                                    : Json();
  json["predicted_fits"] = prediction.fits;
  json["millrace_samples_per_second"] = own.samples_per_second;
  json["millrace_memory_mib"] = in_mebibytes(own.device_memory);
  return json;
}

// {"all", "fitted", "unseen"} of times or memory.
template <typename Quality>
Json describe_all(Quality&& quality) {
  return {{"all", describe(quality(Rows::all))},
          {"fitted", describe(quality(Rows::fitted))},
          {"unseen", describe(quality(Rows::unseen))}};
}

}  // namespace

Json describe(const FitQuality& quality) {
  return {{"rows", quality.rows}, {"median", quality.median}, {"worst", quality.worst}};
}

FitsCheck check_fits(const PublishedTables& tables, const CostConstants& constants) {
  FitsCheck check;
  for (const PublishedRow& row : tables.rows) {
    if (!row.seconds_per_step && !row.published_not_to_fit) continue;
    const Prediction prediction = predict_row(tables, row, constants);
    ++check.known;
    check.right += prediction.fits != row.published_not_to_fit ? 1 : 0;
  }
  return check;
}

OrderCheck check_order(const PublishedTables& tables, const std::vector<RowError>& errors,
                       double tie) {
  OrderCheck check;
  for (size_t i = 0; i < errors.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const RowError &a = errors[i], &b = errors[j];
      if (tables.rows[a.row].family != tables.rows[b.row].family) continue;
      const double scale_a = tables.rows[a.row].job.samples_per_step();
      const double scale_b = tables.rows[b.row].job.samples_per_step();
      const double published = (a.published_seconds / scale_a) / (b.published_seconds / scale_b);
      if (published < 1 + tie && published > 1 / (1 + tie)) continue;
      const double predicted = (a.predicted_seconds / scale_a) / (b.predicted_seconds / scale_b);
      ++check.pairs;
      check.reversed += (published > 1) != (predicted > 1) ? 1 : 0;
    }
  }
  return check;
}

Json compare_published(const PublishedTables& tables, const CostConstants& constants) {
  Json json;
  json["rows"] = Json::array();
  for (const PublishedRow& row : tables.rows) {
    json["rows"].push_back(describe_row(tables, row, constants));
  }
  const std::vector<RowError> errors = errors_of(tables, constants);
  json["errors"] = describe_all([&](Rows which) { return quality_of(tables, errors, which); });
  json["memory_errors"] =
      describe_all([&](Rows which) { return memory_quality_of(tables, errors, which); });
  const OrderCheck order = check_order(tables, errors);
  json["order"] = {{"pairs", order.pairs}, {"reversed", order.reversed}};
  const FitsCheck fits = check_fits(tables, constants);
  json["fits"] = {{"known", fits.known}, {"right", fits.right}};
  return json;
}

}  // namespace millrace::planner
