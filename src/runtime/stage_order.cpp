// The order in which stages run: fixed beforehand, or found on the way.
#include <algorithm>
#include <array>
#include <span>
#include <stdexcept>

#include "runtime/stage_runner.h"

namespace millrace {

std::optional<Task> StageRunner::due_update() const {
  const Schedule& schedule = *segment_.schedule;
  const int64_t all = schedule.updates_of(stage());
  const bool drained = backwards_ == micro_batches();
  const int64_t due =
      drained ? all : schedule.update_of(stage(), own_[static_cast<size_t>(backwards_)]);
  if (updates_ >= due) return std::nullopt;
  const int64_t last = (updates_ + 1) * schedule.micro_batches * schedule.replicas_of(stage());
  return Task{Work::update, std::min(last, schedule.total_micro_batches()) - 1, updates_};
}

// Backward comes first: it frees a slot and brings newer weights.
std::optional<Task> StageRunner::ready_task() const {
  const auto forwards = std::ssize(versions_);
  if (backwards_ < forwards) {
    const int64_t m = own_[static_cast<size_t>(backwards_)];
    if (lanes_.can_receive(true, m) && lanes_.can_send(true, m)) {
      return Task{Work::backward, m, versions_[static_cast<size_t>(backwards_)]};
    }
  }
  if (forwards < micro_batches() && forwards - backwards_ < table().in_flight) {
    const int64_t m = own_[static_cast<size_t>(forwards)];
    const bool fed = fed_.empty() || gate_.is_written(forwards);
    if (fed && lanes_.can_receive(false, m) && lanes_.can_send(false, m)) {
      return Task{Work::forward, m, updates_};
    }
  }
  return std::nullopt;
}

// One replica decides for all, because their collectives have to meet.
Task StageRunner::choose() {
  std::optional<Group> agreement = options_.agreement;
  const bool decides = !agreement || agreement->rank() == 0;
  std::optional<Task> task;
  if (decides) {
    waits_.measure(WaitCause::choice, -1, [&] {
      while (true) {
        const int64_t known = bell_.rings();
        task = ready_task();
        if (task) break;
        bell_.wait(known);
      }
    });
  }
  if (!agreement) return *task;
  std::array<int64_t, 3> words = {};
  if (task) words = {static_cast<int64_t>(task->work), task->micro_batch, task->version};
  waits_.measure(WaitCause::choice, -1,
                 [&] { agreement->broadcast(std::span<int64_t>(words), 0); });
  return {static_cast<Work>(words[0]), words[1], words[2]};
}

void StageRunner::run_free() {
  while (true) {
    if (const std::optional<Task> task = due_update()) {
      execute(*task);
      continue;
    }
    if (backwards_ == micro_batches()) return;
    execute(choose());
  }
}

std::vector<RowTask> tasks_of(const Schedule& schedule, const std::vector<int>& rows,
                              const std::vector<Channel>& channels) {
  if (rows.size() > 1) return interleave(schedule, rows, channels);
  std::vector<RowTask> tasks;
  const int row = rows.at(0);
  for (const Task& task : schedule.rows.at(static_cast<size_t>(row)).tasks) {
    tasks.push_back({row, task});
  }
  return tasks;
}

namespace {

void finish_updates(const std::vector<StageRunner*>& stages, std::optional<Group>& everyone) {
  Findings sum = {};
  for (StageRunner* stage : stages) {
    const Findings found = stage->findings();
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += found[i];
  }
  if (everyone) everyone->all_reduce(std::span<float>(sum));
  for (StageRunner* stage : stages) stage->finish_update(sum);
}

}  // namespace

void run_stages(const std::vector<StageRunner*>& stages, const Schedule& schedule,
                const std::vector<RowTask>& tasks, std::optional<Group> everyone) {
  try {
    for (StageRunner* stage : stages) stage->start();
    if (stages.size() == 1 && !schedule.fixed_order) {
      stages[0]->run_free();
    } else {
      for (const RowTask& next : tasks) {
        const auto runner = std::find_if(stages.begin(), stages.end(), [&](StageRunner* stage) {
          return stage->row(schedule) == next.row;
        });
        if (runner == stages.end()) throw std::logic_error("a task for a stage that is not here");
        (*runner)->execute(next.task);
      }
    }
    finish_updates(stages, everyone);
    for (StageRunner* stage : stages) stage->finish();
  } catch (...) {
    for (StageRunner* stage : stages) stage->close();
    throw;
  }
}

void evaluate_stages(const std::vector<StageRunner*>& stages,
                     const std::function<void(StageRunner&, int64_t)>& finished) {
  std::vector<std::pair<int64_t, StageRunner*>> order;
  for (StageRunner* stage : stages) {
    for (int64_t i = 0; i < stage->micro_batches(); ++i) {
      order.emplace_back(stage->micro_batch(i), stage);
    }
  }
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first, a.second->stage()) < std::pair(b.first, b.second->stage());
  });
  try {
    for (const auto& [micro_batch, stage] : order) {
      stage->evaluate(micro_batch);
      if (finished) finished(*stage, micro_batch);
    }
    for (StageRunner* stage : stages) stage->finish_evaluation();
  } catch (...) {
    for (StageRunner* stage : stages) stage->close();
    throw;
  }
}

}  // namespace millrace
