#include "cli/measured_finalists.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "cli/flag_names.h"
#include "cli/plan_check.h"
#include "cli/progress.h"
#include "cli/standard_files.h"
#include "cli/subprocess.h"
#include "train/plan.h"

namespace millrace::cli {
namespace {

constexpr size_t kLater = 4;           // every fourth finalist is a neighbour of the best
constexpr double kClose = 0.15;        // of the best: trained
constexpr size_t kMostContenders = 5;  // that are trained
constexpr size_t kMostAlike = 2;       // of these, with as many stages and devices
constexpr int kTrials = 3;             // of each
constexpr double kTrialSeconds = 0.5;
constexpr int64_t kLeastSteps = 4, kMostSteps = 100;  // of a trial
constexpr double kSurelyFits = 0.5;                   // of the free memory, by formula

// Tells standard error how far the measurements have come.
class MeasuringProgress {
 public:
  // Besides those that are done.
  void expect(size_t more) { expected_ = done_ + more; }
  void done(const std::string& what) {
    ++done_;
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
    const auto left = static_cast<double>(expected_ - std::min(done_, expected_));
    print_error("{} of {}, about {} left: {}\n", done_, expected_,
                format_duration(elapsed.count() / static_cast<double>(done_) * left),
                with_flags(what));
  }

 private:
  size_t expected_ = 0, done_ = 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

class Trials {
 public:
  Trials(HereOutcome& outcome, const TrialSettings& settings)
      : outcome_(outcome), settings_(settings) {}

  // Predicts most finalists, then neighbours of the best; trains those that are close to the best
  // for a few steps, in turn, because the machine's speed drifts.
  void run() {
    const size_t count = settings_.count;
    const size_t later = count / kLater;
    const std::vector<size_t> first = profile::choose_finalists(outcome_.others, count - later);
    progress_.expect(first.size() + std::min(later, outcome_.others.size() - first.size()));
    measure_those(first);
    const std::vector<size_t> near = near_the_best(later);
    progress_.expect(near.size());
    measure_those(near);
    train_contenders();
  }

 private:
  std::string measure_once(MeasuredPlan& plan) const {
    try {
      const train::TrainJob job = settings_.job_of(plan.candidate);
      const bool known = plan.measured() || plan.candidate.memory < kSurelyFits * settings_.memory;
      if (!known) require_memory(job, settings_.memory);
      plan.reports.push_back(predict_in_child(job, {.rounds = settings_.rounds}, {}));
    } catch (const std::runtime_error& error) {
      plan.failure = marked_text(error);
      return plan.candidate.shape + ": " + plan.failure;
    }
    return fmt::format("{}: {:.1f} samples/s", plan.candidate.shape,
                       plan.candidate.samples() / plan.step_seconds());
  }

  void sort() {
    std::vector<MeasuredPlan>& plans = outcome_.plans;
    std::stable_sort(plans.begin(), plans.end(), [&](const auto& a, const auto& b) {
      if (a.measured() != b.measured()) return a.measured();
      return a.measured() && a.seconds(outcome_.global_batch) < b.seconds(outcome_.global_batch);
    });
  }

  // Makes these of the other candidates, in their order, finalists, and measures them.
  void measure_those(const std::vector<size_t>& places) {
    for (const size_t place : places) {
      outcome_.plans.push_back({outcome_.others[place], {}, {}});
      progress_.done(measure_once(outcome_.plans.back()));
    }
    for (size_t i = places.size(); i-- > 0;) {
      outcome_.others.erase(outcome_.others.begin() + static_cast<std::ptrdiff_t>(places[i]));
    }
    sort();
  }

  // Other numbers of micro-batches for the plans that came out best; where these are too few, the
  // most promising of the rest.
  std::vector<size_t> near_the_best(size_t count) const {
    std::set<size_t> places;
    const auto add = [&](const std::vector<size_t>& more) {
      for (const size_t place : more) {
        if (places.size() < count) places.insert(place);
      }
    };
    for (const MeasuredPlan& plan : outcome_.plans) {
      if (plan.measured()) add(profile::neighbours_of(plan.candidate, outcome_.others));
    }
    add(profile::choose_finalists(outcome_.others, count));
    return {places.begin(), places.end()};
  }

  // The first of the plans that differ by less than predictions are off.
  std::vector<MeasuredPlan*> contenders() {
    std::vector<MeasuredPlan>& plans = outcome_.plans;
    const double limit = plans.front().seconds(outcome_.global_batch) * (1 + kClose);
    std::vector<MeasuredPlan*> found;
    std::map<std::pair<size_t, int>, size_t> alike;
    for (MeasuredPlan& plan : plans) {
      if (!plan.measured() || plan.seconds(outcome_.global_batch) > limit) break;
      const planner::PlannedJob& job = plan.candidate.job;
      if (found.size() < kMostContenders &&
          alike[{job.stages.size(), job.devices()}]++ < kMostAlike)
        found.push_back(&plan);
    }
    return found;
  }

  void train_contenders() {
    std::vector<MeasuredPlan>& plans = outcome_.plans;
    if (!plans.front().measured()) fail_job("No plan could be measured: {}", plans[0].failure);
    const std::vector<MeasuredPlan*> tried = contenders();
    if (tried.size() < 2) return;
    progress_.expect(kTrials * tried.size());
    for (int trial = 0; trial < kTrials; ++trial) {
      for (MeasuredPlan* plan : tried) progress_.done(train_once(*plan));
    }
    const double global_batch = outcome_.global_batch;
    std::stable_sort(plans.begin(), plans.end(), [&](const auto& a, const auto& b) {
      if (a.trials.empty() || b.trials.empty()) return !a.trials.empty() && b.trials.empty();
      return a.trained_seconds() * global_batch / a.candidate.samples() <
             b.trained_seconds() * global_batch / b.candidate.samples();
    });
  }

  std::string train_once(MeasuredPlan& plan) const {
    const auto steps = std::clamp<int64_t>(std::llround(kTrialSeconds / plan.step_seconds()),
                                           kLeastSteps, kMostSteps);
    try {
      plan.trials.push_back(train_in_child(settings_.job_of(plan.candidate), steps));
    } catch (const std::runtime_error& error) {
      return plan.candidate.shape + ": " + marked_text(error);
    }
    return fmt::format("{}: trained, {:.1f} samples/s", plan.candidate.shape,
                       plan.candidate.samples() / plan.trials.back());
  }

  HereOutcome& outcome_;
  const TrialSettings& settings_;
  MeasuringProgress progress_;
};

}  // namespace

void require_memory(const train::TrainJob& job, double memory) {
  const auto needed = std::stoull(in_child([&] {
    ProgressPrinter messages(true);
    uint64_t sum = 0;
    for (const Json& device : train::describe_plan(job, messages)["devices"]) {
      sum += device["peak_bytes"].get<uint64_t>();
    }
    return std::to_string(sum);
  }));
  if (static_cast<double>(needed) > memory) {
    fail_input("It needs {}, and {} are free.", format_bytes(needed),
               format_bytes(static_cast<uint64_t>(memory)));
  }
}

void measure_finalists(HereOutcome& outcome, const TrialSettings& settings) {
  Trials(outcome, settings).run();
}

}  // namespace millrace::cli
