#include "cli/here_report.h"

#include <fmt/format.h>

#include <cmath>

#include "base/median.h"
#include "base/text.h"
#include "passes/settings.h"
#include "profile/measure.h"

namespace millrace::cli {
namespace {

constexpr size_t kBest = 5;
constexpr size_t kMostOthers = 24;  // that were not measured

uint64_t whole_bytes(double bytes) { return static_cast<uint64_t>(std::llround(bytes)); }

uint64_t arenas_of(const Json& report) {
  uint64_t sum = 0;
  for (const Json& device : report["devices"]) sum += device["peak_bytes"].get<uint64_t>();
  return sum;
}

// What measured and other plans have in common.
Json describe(const profile::HereCandidate& candidate, const HereOutcome& outcome) {
  const double global_batch = outcome.global_batch;
  const double estimated = candidate.estimated_seconds;
  return {{"shape", candidate.shape},
          {"device_count", candidate.devices()},
          {"fits", candidate.fits},
          {"exact", candidate.job.is_exact()},
          {"estimated", estimated},
          {"predicted_seconds_per_step", estimated * candidate.samples() / global_batch},
          {"predicted_samples_per_second", global_batch / estimated},
          {"predicted_epoch_seconds", planner::kImagesOfEpoch * estimated / global_batch},
          {"peak_bytes", whole_bytes(candidate.memory)},
          {"flags", describe_flags(candidate.job)},
          {"plan", parallel::to_json(planner::plan_file_of(candidate.plan, candidate.job,
                                                           outcome.model, "here"))}};
}

std::string why_slower(const MeasuredPlan& plan, double seconds, double best) {
  const Json& report = plan.reports.back();
  const double idle = report["bubble"].get<double>();
  std::string text = fmt::format("{:.1f} % slower", (1 - best / seconds) * 100);
  if (idle > 0.05) text += fmt::format("; devices idle {:.0f} % of the time", idle * 100);
  if (plan.candidate.job.recompute) text += "; computes activations twice";
  return text;
}

// Samples per second when it was trained.
double rate_of(const MeasuredPlan& plan) {
  return plan.candidate.samples() / plan.trained_seconds();
}

Json describe(const MeasuredPlan& plan, const HereOutcome& outcome, double best) {
  const double global_batch = outcome.global_batch;
  Json json = describe(plan.candidate, outcome);
  if (!plan.measured()) {
    json["verdict"] = "could not be measured: " + plan.failure;
    return json;
  }
  const Json& report = plan.reports.back();
  const double seconds = plan.seconds(global_batch);
  json["predicted"] = seconds;
  json["predicted_seconds_per_step"] = plan.step_seconds();
  json["predicted_samples_per_second"] = global_batch / seconds;
  json["predicted_epoch_seconds"] = planner::kImagesOfEpoch * seconds / global_batch;
  json["error_estimate"] = report["error_estimate"];
  json["bubble"] = report["bubble"];
  json["peak_bytes"] = arenas_of(report);
  json["process_rss_bytes"] = report["process_rss_bytes"];
  std::string standing;
  if (!plan.trials.empty()) {
    json["trained_seconds_per_step"] = plan.trained_seconds();
    const double fastest = rate_of(outcome.plans.front());
    const double rate = rate_of(plan);
    standing = rate >= fastest
                   ? fmt::format("the fastest when trained, {:.1f} samples/s", rate)
                   : fmt::format("{:.1f} % slower when trained", (1 - rate / fastest) * 100);
  } else {
    standing = seconds <= best ? "the fastest that was measured" : why_slower(plan, seconds, best);
  }
  json["verdict"] = fmt::format("{}; the process takes {}; the formula said {:.1f} samples/s.",
                                standing, format_bytes(report["process_rss_bytes"].get<uint64_t>()),
                                global_batch / plan.candidate.estimated_seconds);
  return json;
}

std::string not_measured(const profile::HereCandidate& candidate,
                         const profile::HereCandidate& chosen) {
  if (!candidate.fits) return candidate.reason;
  if (&candidate == &chosen) return "the fastest by formula; not measured.";
  const double times = chosen.estimated_seconds / candidate.estimated_seconds;
  return fmt::format("by formula {:.1f} % {} than the best; not measured.",
                     100 * std::abs(times - 1), times > 1 ? "faster" : "slower");
}

}  // namespace

double MeasuredPlan::step_seconds() const {
  std::vector<double> all;
  for (const Json& report : reports) all.push_back(report["predicted_step_seconds"].get<double>());
  return median(all);
}

double MeasuredPlan::trained_seconds() const { return median(trials); }

double MeasuredPlan::seconds(double global_batch) const {
  return step_seconds() * global_batch / candidate.samples();
}

Json describe_search(const HereOutcome& outcome) {
  const bool measured = !outcome.plans.empty();
  const bool fits = measured || (!outcome.others.empty() && outcome.others.front().fits);
  Json json = {{"tried", outcome.tried}, {"fits", fits}, {"measured", measured}};
  json["best"] = Json::array();
  json["others"] = Json::array();
  double best = 0;
  for (const MeasuredPlan& plan : outcome.plans) {
    if (best == 0 && plan.measured()) best = plan.seconds(outcome.global_batch);
    const bool shown_first = plan.measured() && json["best"].size() < kBest;
    json[shown_first ? "best" : "others"].push_back(describe(plan, outcome, best));
  }
  size_t fitting = 0;
  for (const profile::HereCandidate& candidate : outcome.others) {
    if (candidate.fits && ++fitting > kBest + kMostOthers) continue;
    Json other = describe(candidate, outcome);
    const profile::HereCandidate& chosen =
        measured ? outcome.plans.front().candidate : outcome.others[0];
    other["verdict"] = not_measured(candidate, chosen);
    const bool shown_first = !measured && candidate.fits && json["best"].size() < kBest;
    json[shown_first ? "best" : "others"].push_back(std::move(other));
  }
  return json;
}

Json describe_choice(const HereOutcome& outcome, const planner::NetworkWork& network) {
  const MeasuredPlan& chosen = outcome.plans.front();
  const profile::HereCandidate& candidate = chosen.candidate;
  Json json = chosen.reports.back();
  const double seconds = chosen.step_seconds();
  json["model"] = network.model;
  json["cluster"] = "here";
  json["system"] = "millrace";
  json["global_batch"] = candidate.samples();
  json["precision"] = passes::precision_name(candidate.job.precision);
  json["predicted_step_seconds"] = seconds;
  json["predicted_seconds_per_step"] = seconds;
  json["predicted_samples_per_second"] = candidate.samples() / seconds;
  json["predicted_epoch_seconds"] = planner::kImagesOfEpoch * seconds / candidate.samples();
  json["fits"] = true;
  add_exactness(json, candidate.job);
  json["stages"] = describe_stages(candidate.job, network, candidate.devices());
  json["flags"] = describe_flags(candidate.job);
  json["plan"] = parallel::to_json(
      planner::plan_file_of(candidate.plan, candidate.job, network.model, "here"));
  json["search"] = describe_search(outcome);
  return json;
}

std::string format_choice(const Json& described) {
  std::string text = format_search(described["search"]);
  text += fmt::format(
      "\n{} here, global batch {:.0f}, {}\n\n", described["model"].get<std::string>(),
      described["global_batch"].get<double>(), described["precision"].get<std::string>());
  text += format_stage_lines(described);
  if (described.contains("accuracy")) text += described["accuracy"].get<std::string>() + "\n";
  text += fmt::format(
      "\nPredicted {:.4g} s per step, {:.1f} samples/s, from a profile of its programs; the "
      "process "
      "takes {}.\nTrain it with",
      described["predicted_seconds_per_step"].get<double>(),
      described["predicted_samples_per_second"].get<double>(),
      format_bytes(described["process_rss_bytes"].get<uint64_t>()));
  for (const auto& [flag, value] : described["flags"].items()) {
    text += fmt::format(
        " {} {}", flag,
        value.is_string() ? value.get<std::string>() : fmt::format("{:g}", value.get<double>()));
  }
  return text + " and the plan that --output writes.\n" + format_price(described);
}

}  // namespace millrace::cli
