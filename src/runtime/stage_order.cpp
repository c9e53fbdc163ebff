// The order in which stages run: fixed beforehand, or found on the way.
#include <algorithm>
#include <array>
#include <span>
#include <stdexcept>

#include "runtime/stage_runner.h"

namespace millrace::runtime {

std::optional<parallel::Task> StageRunner::due_update() const {
  const parallel::Schedule& schedule = *segment_.schedule;
  const int64_t all = schedule.updates_of(stage());
  const bool drained = backwards_ == micro_batches();
  const int64_t due =
      drained ? all : schedule.update_of(stage(), own_[static_cast<size_t>(backwards_)]);
  if (updates_ >= due) return std::nullopt;
  const int64_t last = (updates_ + 1) * schedule.micro_batches * schedule.replicas_of(stage());
  return parallel::Task{parallel::Work::update, std::min(last, schedule.total_micro_batches()) - 1,
                        updates_};
}

bool StageRunner::can_move(parallel::Work work, int64_t micro_batch) const {
  const compile::TaskRange& range = training_.task(work);
  for (size_t i = range.begin; i < range.end; ++i) {
    const compile::Instruction& instruction = training_.instructions[i];
    if (!instruction.is_of_message() || !instruction.turn.has(micro_batch)) continue;
    const bool stuck = (instruction.kind == compile::InstructionKind::receive &&
                        !channels_.has_message(instruction.channel)) ||
                       (instruction.kind == compile::InstructionKind::send &&
                        !channels_.has_room(instruction.channel));
    if (stuck) return false;
  }
  return true;
}

// Backward comes first: it frees a slot and brings newer weights.
std::optional<parallel::Task> StageRunner::ready_task() const {
  const auto forwards = std::ssize(versions_);
  if (backwards_ < forwards) {
    const int64_t m = own_[static_cast<size_t>(backwards_)];
    if (can_move(parallel::Work::backward, m)) {
      return parallel::Task{parallel::Work::backward, m,
                            versions_[static_cast<size_t>(backwards_)]};
    }
  }
  if (forwards < micro_batches() && forwards - backwards_ < table().in_flight) {
    const int64_t m = own_[static_cast<size_t>(forwards)];
    const bool fed = fed_.empty() || gate_.is_written(forwards);
    if (fed && can_move(parallel::Work::forward, m)) {
      return parallel::Task{parallel::Work::forward, m, updates_};
    }
  }
  return std::nullopt;
}

// Before waiting for other hosts, which may need what this one has given to its queues: a queue
// need not run before somebody asks for what is in it.
void StageRunner::ask_for_all() const {
  static_cast<void>(session_.stream().record().is_done());
  static_cast<void>(channels_.are_drained());
}

// One replica decides for all, because their collectives have to meet.
parallel::Task StageRunner::choose() {
  std::optional<comm::Group> agreement = options_.agreement;
  const bool decides = !agreement || agreement->rank() == 0;
  std::optional<parallel::Task> task;
  if (decides) {
    waits_.measure(WaitCause::choice, -1, [&] {
      while (true) {
        const int64_t known = bell_.rings();
        task = ready_task();
        if (task) break;
        ask_for_all();
        bell_.wait(known);
      }
    });
  }
  if (!agreement) return *task;
  if (!decides) ask_for_all();
  std::array<int64_t, 3> words = {};
  if (task) words = {static_cast<int64_t>(task->work), task->micro_batch, task->version};
  waits_.measure(WaitCause::choice, -1,
                 [&] { agreement->broadcast(std::span<int64_t>(words), 0); });
  return {static_cast<parallel::Work>(words[0]), words[1], words[2]};
}

void StageRunner::run_free() {
  while (true) {
    if (const std::optional<parallel::Task> task = due_update()) {
      execute(*task);
      continue;
    }
    if (backwards_ == micro_batches()) return;
    execute(choose());
  }
}

namespace {

void finish_updates(const std::vector<StageRunner*>& stages, std::optional<comm::Group>& everyone) {
  Findings sum = {};
  for (StageRunner* stage : stages) {
    const Findings found = stage->findings();
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += found[i];
  }
  if (everyone) everyone->all_reduce(std::span<float>(sum));
  for (StageRunner* stage : stages) stage->finish_update(sum);
}

}  // namespace

void run_stages(const std::vector<StageRunner*>& stages, const parallel::Schedule& schedule,
                const std::vector<parallel::RowTask>& tasks, std::optional<comm::Group> everyone) {
  try {
    for (StageRunner* stage : stages) stage->start();
    if (stages.size() == 1 && !schedule.fixed_order) {
      stages[0]->run_free();
    } else {
      for (const parallel::RowTask& next : tasks) {
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

}  // namespace millrace::runtime
