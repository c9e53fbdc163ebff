#include "cli/measured_finalists.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
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

constexpr double kClose = 0.05;        // of the best: measured again
constexpr size_t kLater = 4;           // every fourth finalist is a neighbour of the best
constexpr size_t kMostContenders = 3;  // that are measured again
constexpr int kAgain = 2;              // times
constexpr double kSurelyFits = 0.5;    // of the free memory, by formula

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

  // Most finalists once, then neighbours of the best, then those that are close to the best in
  // turn, because the machine's speed drifts.
  void run() {
    const size_t count = settings_.count;
    const size_t later = count / kLater;
    const std::vector<size_t> first = profile::choose_finalists(outcome_.others, count - later);
    progress_.expect(first.size() + std::min(later, outcome_.others.size() - first.size()));
    measure_those(first);
    const std::vector<size_t> near = near_the_best(later);
    progress_.expect(near.size());
    measure_those(near);
    measure_again();
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

  void measure_again() {
    std::vector<MeasuredPlan>& plans = outcome_.plans;
    if (!plans.front().measured()) fail_job("No plan could be measured: {}", plans[0].failure);
    const double global_batch = outcome_.global_batch;
    const double limit = plans.front().seconds(global_batch) * (1 + kClose);
    size_t contenders = 0;
    while (contenders < std::min(plans.size(), kMostContenders) && plans[contenders].measured() &&
           plans[contenders].seconds(global_batch) <= limit) {
      ++contenders;
    }
    if (contenders < 2) return;
    progress_.expect(kAgain * contenders);
    for (int again = 0; again < kAgain; ++again) {
      for (size_t i = 0; i < contenders; ++i) progress_.done(measure_once(plans[i]) + " (again)");
    }
    sort();
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
