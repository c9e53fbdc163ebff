#include "planner/published/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace millrace {
namespace {

constexpr double kMebibyte = 1024.0 * 1024.0;

Json in_mebibytes(const std::vector<double>& bytes) {
  Json sizes = Json::array();
  for (const double value : bytes) sizes.push_back(std::round(value / kMebibyte));
  return sizes;
}

Json describe_row(const PublishedTables& tables, const PublishedRow& row,
                  const CostConstants& constants) {
  const Cluster cluster = find_cluster(row.cluster, "cluster");
  const NetworkWork& network = tables.network(row);
  const Prediction prediction =
      predict(network, row.job, cluster, constants, constants.system(row.system, "system"));
  const Prediction own =
      predict(network, row.job, cluster, constants, constants.system("millrace", "system"));
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

Json describe_quality(const FitQuality& quality) {
  return {{"rows", quality.rows}, {"median", quality.median}, {"worst", quality.worst}};
}

std::string whole(const Json& value) {
  return value.is_null() ? "" : fmt::format("{:.0f}", value.get<double>());
}

std::string percent(const Json& value) {
  return value.is_null() ? "" : fmt::format("{:+.1f} %", value.get<double>() * 100);
}

std::string sizes(const Json& list) {
  std::string text;
  for (const Json& value : list) {
    if (!text.empty()) text += " / ";
    text += fmt::format("{:.0f}", value.get<double>());
  }
  return text;
}

std::string verdict(const Json& row) {
  const bool predicted = row["predicted_fits"].get<bool>();
  const Json& published = row["published_fits"];
  std::string text = predicted ? "yes" : "no";
  if (!published.is_null() && published.get<bool>() != predicted) {
    text += published.get<bool>() ? " (it does)" : " (it does not)";
  }
  return text;
}

}  // namespace

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
  size_t known = 0, right = 0;
  for (const PublishedRow& row : tables.rows) {
    json["rows"].push_back(describe_row(tables, row, constants));
    const Json& last = json["rows"].back();
    if (last["published_fits"].is_null()) continue;
    ++known;
    right += last["published_fits"] == last["predicted_fits"] ? 1 : 0;
  }
  const std::vector<RowError> errors = errors_of(tables, constants);
  json["errors"] = {{"all", describe_quality(quality_of(tables, errors, Rows::all))},
                    {"fitted", describe_quality(quality_of(tables, errors, Rows::fitted))},
                    {"unseen", describe_quality(quality_of(tables, errors, Rows::unseen))}};
  const OrderCheck order = check_order(tables, errors);
  json["order"] = {{"pairs", order.pairs}, {"reversed", order.reversed}};
  json["fits"] = {{"known", known}, {"right", right}};
  return json;
}

std::string to_markdown(const Json& comparison) {
  std::string text =
      "# Published measurements and predictions\n\n"
      "Samples per second of the whole job, MiB per device (by stage). A star marks rows that the "
      "cost constants were fitted to. Millrace's own columns rest on guesses that no "
      "measurement has confirmed yet.\n\n"
      "| system | model | configuration | published | predicted | error | published MiB | "
      "predicted MiB | fits | Millrace predicted | Millrace MiB |\n"
      "|---|---|---|---:|---:|---:|---:|---:|---|---:|---:|\n";
  for (const Json& row : comparison["rows"]) {
    text += fmt::format(
        "| {} | {} | {}{} | {} | {:.0f} | {} | {} | {} | {} | {:.0f} | {} |\n",
        row["system"].get<std::string>(), row["model"].get<std::string>(),
        row["configuration"].get<std::string>(), row["fitted"].get<bool>() ? " *" : "",
        whole(row["published_samples_per_second"]),
        row["predicted_samples_per_second"].get<double>(), percent(row["error"]),
        sizes(row["published_memory_mib"]), sizes(row["predicted_memory_mib"]), verdict(row),
        row["millrace_samples_per_second"].get<double>(), sizes(row["millrace_memory_mib"]));
  }
  text +=
      "\n| rows with a published time | count | median error | worst error "
      "|\n|---|---:|---:|---:|\n";
  for (const auto& [name, quality] : comparison["errors"].items()) {
    text +=
        fmt::format("| {} | {} | {:.1f} % | {:.1f} % |\n", name, quality["rows"].get<size_t>(),
                    quality["median"].get<double>() * 100, quality["worst"].get<double>() * 100);
  }
  text += fmt::format(
      "\nOrder within a family: {} of {} pairs that differ by more than 3 % come out as published. "
      "Whether a job fits is right for {} of {} rows.\n",
      comparison["order"]["pairs"].get<size_t>() - comparison["order"]["reversed"].get<size_t>(),
      comparison["order"]["pairs"].get<size_t>(), comparison["fits"]["right"].get<size_t>(),
      comparison["fits"]["known"].get<size_t>());
  return text;
}

}  // namespace millrace
