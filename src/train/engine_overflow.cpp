// Which steps changed nothing because a gradient overflowed, agreed on by all processes.
#include <algorithm>
#include <span>

#include "base/error.h"
#include "comm/texts.h"
#include "train/engine.h"

namespace millrace::train {
namespace {

// Where devices share parameters, what is looked at is the sum of their gradients, but for a probe.
std::string describe(const Worker& worker, const std::string& parameter, bool began_here) {
  if (worker.members > 1 && !began_here) {
    return fmt::format("the gradient of '{}', the sum over {} devices (stage {})", parameter,
                       worker.members, worker.stage);
  }
  return fmt::format("the gradient of '{}' on device {} (stage {})", parameter,
                     parallel::to_string(worker.id), worker.stage);
}

// Those before it have nothing to train, and no gradient reaches them.
int first_trained_stage(const parallel::JobGraphs& graphs) {
  for (int stage = 0; stage < graphs.plan().stage_count(); ++stage) {
    const graph::Graph graph = graphs.local(stage, 0).graph;
    for (graph::TensorId id = 0; id < graph.tensor_count(); ++id) {
      if (graph.tensor(id).role == graph::Role::parameter) return stage;
    }
  }
  return graphs.plan().stage_count();
}

void require_gradient(const InjectedOverflow& fault, std::span<const std::vector<int>> trained) {
  const bool has_one = std::any_of(trained.begin(), trained.end(), [&](const auto& devices) {
    return std::find(devices.begin(), devices.end(), fault.device) != devices.end();
  });
  if (has_one) return;
  fail_input(
      "‹inject_overflow› names device {}, which has no layer that is trained; name another, as "
      "{}:DEVICE.",
      fault.device, fault.step);
}

}  // namespace

void Engine::inject_faults(const StepSettings& job) {
  if (job.inject_overflow.empty()) return;
  const auto numbers = plan_.device_numbers();
  const int first = first_trained_stage(graphs_);
  for (const InjectedOverflow& fault : job.inject_overflow) {
    require_gradient(fault, std::span(numbers).subspan(static_cast<size_t>(first)));
  }
  for (const auto& worker : workers_) {
    if (worker->stage < first) continue;
    const int number =
        numbers[static_cast<size_t>(worker->stage)][static_cast<size_t>(worker->member)];
    std::vector<int64_t> steps;
    for (const InjectedOverflow& fault : job.inject_overflow) {
      if (fault.device == number) steps.push_back(fault.step - 1);
    }
    if (!steps.empty() && worker->training) runtime::inject_overflow(*worker->training, steps);
  }
}

void Engine::set_skipped_updates(std::vector<int64_t> by_stage) {
  const auto stages = static_cast<size_t>(plan_.stage_count());
  // Another division of the network: the stage that skipped most speaks for all.
  if (by_stage.size() != stages) {
    const int64_t most = by_stage.empty() ? 0 : *std::max_element(by_stage.begin(), by_stage.end());
    by_stage.assign(stages, most);
  }
  skipped_updates_ = std::move(by_stage);
}

// Descriptions with the device are better than those without.
std::string Engine::agree_on_source(std::string own) {
  if (!rank_group_) return own;
  std::string best;
  for (const std::string& text : comm::gather_texts(*rank_group_, own)) {
    const bool names_device = text.find(" on device ") != std::string::npos;
    if (best.empty() || (names_device && best.find(" on device ") == std::string::npos)) {
      best = text;
    }
  }
  return best;
}

void Engine::note_overflows(std::vector<StepOutcome>& outcomes) {
  const auto count = outcomes.size();
  const int64_t per_step = plan_.micro_batches;
  std::vector<double> found(count + skipped_updates_.size(), 0);
  std::string own;
  bool known = false;
  pipeline_->each_skip([&](const Worker& worker, const runtime::SkippedUpdate& skip) {
    for (int64_t s = skip.first_micro_batch / per_step; s <= skip.last_micro_batch / per_step;
         ++s) {
      found[static_cast<size_t>(s)] = 1;
    }
    if (worker.member == 0) found[count + static_cast<size_t>(worker.stage)] += 1;
    if (skip.parameter.empty() || (!own.empty() && (known || !skip.began_here))) return;
    own = describe(worker, skip.parameter, skip.began_here);
    known = skip.began_here;
  });
  if (rank_group_) rank_group_->all_reduce(std::span(found));
  if (std::all_of(found.begin(), found.end(), [](double value) { return value == 0; })) return;
  const std::string source = agree_on_source(std::move(own));
  for (size_t i = 0; i < count; ++i) {
    if (found[i] == 0) continue;
    outcomes[i].skipped = true;
    outcomes[i].overflow = source;
  }
  for (size_t s = 0; s < skipped_updates_.size(); ++s) {
    skipped_updates_[s] += static_cast<int64_t>(found[count + s]);
  }
}

}  // namespace millrace::train
