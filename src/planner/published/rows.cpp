#include "planner/published/rows.h"

#include <fmt/format.h>

#include <utility>

#include "base/text.h"
#include "parallel/partition.h"
#include "planner/data/table.h"
#include "planner/search/cuts.h"

namespace millrace::planner {
namespace {

std::string model_of(const std::string& published) {
  return published == "resnet50-v1.5" ? "resnet50" : published;
}

std::vector<double> parse_memory(const std::string& text) {
  std::vector<double> sizes;
  if (text.empty() || text[0] < '0' || text[0] > '9') return sizes;
  for (const std::string& part : split(text, ';')) sizes.push_back(std::stod(part));
  return sizes;
}

class TableReader {
 public:
  PublishedTables read() {
    for (auto& record : embedded_table("published_training.csv")) add_training(record);
    for (auto& record : embedded_table("published_heads.csv")) add_head(record);
    for (auto& record : embedded_table("calibration.csv")) add_calibration(record);
    for (auto& record : embedded_table("other_architectures.csv")) {
      tables_.elsewhere.push_back(rate_row(record));
    }
    for (const PublishedRow& row : tables_.rows) add_cluster(row);
    for (const PublishedRow& row : tables_.elsewhere) add_cluster(row);
    for (const CalibrationRow& calibration : tables_.calibration) add_cluster(calibration.row);
    return std::move(tables_);
  }

 private:
  const NetworkWork& network(const std::string& model, const models::ModelOptions& options) {
    const auto found = tables_.networks.find(model);
    if (found != tables_.networks.end()) return found->second;
    return tables_.networks[model] = work_of(model, options);
  }

  void add_cluster(const PublishedRow& row) {
    if (tables_.clusters.contains(row.cluster)) return;
    tables_.clusters[row.cluster] = find_cluster(row.cluster, "cluster");
  }

  // Data parallel on the first devices of a cluster; one where the table does not say how many.
  PublishedRow rate_row(TableRecord& record) {
    PublishedRow row;
    row.system = record["system"];
    row.model = record["model"];
    row.cluster = record["cluster"];
    row.label = record["source"];
    row.options = models::default_options(row.model);
    row.job.batch = std::stod(record["batch"]);
    row.job.precision = record["precision"] == "fp16" ? graph::DataType::f16 : graph::DataType::f32;
    const NetworkWork& work = network(row.model, row.options);
    PlannedStage stage{{}, 0, static_cast<int>(work.layers.size())};
    const int devices = record.contains("devices") ? std::stoi(record["devices"]) : 1;
    for (int device = 0; device < devices; ++device) stage.devices.push_back(device);
    row.job.stages = {stage};
    row.seconds_per_step = row.job.samples_per_step() / std::stod(record["samples_per_second"]);
    return row;
  }

  void add_calibration(TableRecord& record) {
    tables_.calibration.push_back({rate_row(record), std::stod(record["tolerance"])});
  }

  void add_training(TableRecord& record) {
    PublishedRow row;
    row.system = record["system"];
    row.model = model_of(record["model"]);
    row.options = models::default_options(row.model);
    const int cards = std::stoi(record["cards"]), machines = std::stoi(record["machines"]);
    const bool half = record["precision"].starts_with("fp16");
    row.cluster = half ? "v100-16gb-8" : "titanv-8";
    if (machines > 1) row.cluster += fmt::format("x{}", machines);
    row.job.batch = std::stod(record["batch"]);
    row.job.precision = half ? graph::DataType::f16 : graph::DataType::f32;
    row.job.real_data = record["data"] == "real";
    row.job.schedule = parallel::ScheduleKind::ssp;
    row.job.fixed_order = record["static_scheduling"] == "on";
    row.family = fmt::format("{} {}", row.system, record["model"]);
    row.label = fmt::format("{} × {}, {}", cards, record["batch"], record["data"]);
    place(row, record, cards, machines);
    if (!record["epoch_seconds"].empty()) {
      row.seconds_per_step =
          std::stod(record["epoch_seconds"]) / kImagesOfEpoch * row.job.samples_per_step();
    } else if (!record["samples_per_second"].empty()) {
      row.seconds_per_step = row.job.samples_per_step() / std::stod(record["samples_per_second"]);
    }
    row.memory_mib = parse_memory(record["memory_mib"]);
    row.published_not_to_fit = record["memory_mib"] == "does not fit";
    row.fitted = record["fit"] == "yes";
    tables_.rows.push_back(std::move(row));
  }

  void place(PublishedRow& row, TableRecord& record, int cards, int machines) {
    const NetworkWork& work = network(row.model, row.options);
    const int layers = static_cast<int>(work.layers.size());
    const std::string& placement = record["placement"];
    const std::string& weights = record["stage_weights"];
    if (placement.empty()) {
      PlannedStage stage{{}, 0, layers};
      for (int device = 0; device < cards; ++device) stage.devices.push_back(device);
      row.job.stages = {stage};
      row.job.schedule = parallel::ScheduleKind::one_f_one_b_flush;
      return;
    }
    row.label += fmt::format(", {} as {}", placement, weights);
    if (!record["static_scheduling"].empty()) {
      row.label += fmt::format(", static scheduling {}", record["static_scheduling"]);
    }
    for (auto& devices : devices_on(parallel::parse_stages(placement), machines, 8, "placement")) {
      row.job.stages.push_back({std::move(devices), 0, 0});
    }
    if (weights == "profile") {
      row.job.schedule = parallel::ScheduleKind::one_f_one_b;
      row.job.round_robin = true;
      row.cut_by_profile = true;
      return;
    }
    set_cuts(row.job,
             cut_by_operators(work, parallel::parse_stage_weights(weights, "stage_weights"),
                              "stage_weights"));
  }

  void add_head(TableRecord& record) {
    using Parallel = PlannedHead::Parallel;
    PublishedRow row;
    row.system = "insightface";
    row.model = "iresnet50";
    row.options = models::default_options(row.model);
    row.options.classes = 2;
    row.cluster = "v100-32gb-8";
    const NetworkWork& work = network(row.model, row.options);
    PlannedStage stage{{}, 0, static_cast<int>(work.layers.size())};
    for (int device = 0; device < 8; ++device) stage.devices.push_back(device);
    row.job.stages = {stage};
    row.job.batch = 128;
    row.job.precision = graph::DataType::f16;
    row.job.head.classes = std::stod(record["identities"]);
    const std::string& parallel = record["parallel"];
    row.job.head.parallel = parallel == "dp"   ? Parallel::data
                            : parallel == "mp" ? Parallel::model
                                               : Parallel::sampled;
    row.family = fmt::format("insightface {} identities", record["identities"]);
    row.label = fmt::format("8 × 128, {} identities, {}", record["identities"], parallel);
    const std::string& rate = record["samples_per_second"];
    row.published_not_to_fit = rate == "oom";
    if (!rate.empty() && rate != "oom") {
      row.seconds_per_step = row.job.samples_per_step() / std::stod(rate);
    }
    row.memory_mib = parse_memory(record["memory_mib"]);
    row.fitted = record["fit"] == "yes";
    tables_.rows.push_back(std::move(row));
  }

  PublishedTables tables_;
};

}  // namespace

const NetworkWork& PublishedTables::network(const PublishedRow& row) const {
  return networks.at(row.model);
}

const simulate::Cluster& PublishedTables::cluster(const PublishedRow& row) const {
  return clusters.at(row.cluster);
}

PublishedTables published_tables(const CostConstants& constants) {
  PublishedTables tables = TableReader().read();
  cut_again(tables, constants);
  return tables;
}

void cut_again(PublishedTables& tables, const CostConstants& constants) {
  for (PublishedRow& row : tables.rows) {
    if (!row.cut_by_profile) continue;
    const SoftwareConstants& software = constants.system(row.system, "system");
    const CostContext context{tables.network(row), tables.cluster(row), constants, software};
    StageLinks links = links_of(context, row.job, simulate::Fabric(context.cluster));
    links.boundaries.clear();  // PipeDream cuts as if messages travelled for free
    set_cuts(row.job, cut_by_cost(context, row.job, links));
  }
}

}  // namespace millrace::planner
