#include "parallel/machine.h"

#include <fmt/format.h>

#include <algorithm>

namespace millrace::parallel {
namespace {

double default_cost(const Task& task) {
  if (task.work == Work::update) return 0;
  return task.work == Work::backward ? 2 : 1;
}

bool goes_backward(Work work) { return work == Work::backward || work == Work::backward_input; }

}  // namespace

Machine::Machine(const Schedule& schedule, const std::vector<Channel>& channels, const Costs& costs)
    : schedule_(schedule), channels_(channels), costs_(costs) {
  states_.resize(schedule.rows.size());
  ordered_.resize(schedule.orders.size(), 0);
  result_.rows.resize(schedule.rows.size());
  result_.busy.resize(schedule.rows.size(), 0);
  for (int row = 0; row < row_count(); ++row) {
    for (const Task& task : row_at(row).tasks) {
      if (task.work == Work::forward) state(row).own.push_back(task.micro_batch);
    }
  }
  channels_of_.resize(static_cast<size_t>(schedule.stages));
  for (size_t c = 0; c < channels.size(); ++c) {
    const Channel& channel = channels[c];
    const int pairs = schedule.replicas_of(channel.from) * schedule.replicas_of(channel.to);
    queues_.emplace_back(static_cast<size_t>(pairs), Queue{&channel, {}, {}});
    channels_of_[static_cast<size_t>(channel.from)].push_back(c);
    channels_of_[static_cast<size_t>(channel.to)].push_back(c);
  }
}

bool Machine::reads(const Channel& channel, int stage, const Task& task) const {
  if (channel.to != stage) return false;
  return task.work == Work::forward ? channel.from < stage
                                    : goes_backward(task.work) && channel.from > stage;
}

bool Machine::writes(const Channel& channel, int stage, const Task& task) const {
  if (channel.from != stage) return false;
  return task.work == Work::forward ? channel.to > stage
                                    : goes_backward(task.work) && channel.to < stage;
}

size_t Machine::queue_of(size_t channel, int64_t micro_batch) const {
  const int to = schedule_.replicas_of(channels_[channel].to);
  return static_cast<size_t>(micro_batch % schedule_.replicas_of(channels_[channel].from) * to +
                             micro_batch % to);
}

std::vector<Task> Machine::candidates(int row) const {
  const RowState& now = state(row);
  const Row& table = row_at(row);
  if (schedule_.fixed_order) {
    if (now.position == table.tasks.size()) return {};
    if (!schedule_.orders.empty()) {
      const size_t device = device_of(row);
      if (schedule_.orders[device][ordered_[device]].row != row) return {};
    }
    return {table.tasks[now.position]};
  }
  const int64_t all = schedule_.updates_of(table.stage);
  const bool drained = now.backwards == now.own.size();
  const int64_t due = drained ? all : schedule_.update_of(table.stage, now.own[now.backwards]);
  if (now.updates < due) {
    const int64_t last =
        (now.updates + 1) * schedule_.micro_batches * schedule_.replicas_of(table.stage);
    return {{Work::update, std::min(last, schedule_.total_micro_batches()) - 1, now.updates}};
  }
  std::vector<Task> tasks;
  if (now.backwards < now.forwards) {
    tasks.push_back({Work::backward, now.own[now.backwards], now.versions[now.backwards]});
  }
  if (now.forwards < now.own.size() &&
      static_cast<int64_t>(now.forwards - now.backwards) < table.in_flight) {
    tasks.push_back({Work::forward, now.own[now.forwards], now.updates});
  }
  return tasks;
}

// All replicas of a stage begin an update together.
std::optional<double> Machine::meeting_of(int row, const Task& task, std::string* reason) const {
  const int stage = row_at(row).stage;
  double begin = 0;
  for (int other = row - row_at(row).replica, i = 0; i < schedule_.replicas_of(stage); ++i) {
    const std::vector<Task> next = candidates(other + i);
    if (next.empty() || next[0].work != Work::update || next[0].version != task.version) {
      if (reason != nullptr) *reason = fmt::format("replica {} of its stage", i);
      return std::nullopt;
    }
    begin = std::max(begin, state(other + i).free_at);
  }
  return begin;
}

std::optional<double> Machine::begin_of(int row, const Task& task, std::string* reason) const {
  if (task.work == Work::update) return meeting_of(row, task, reason);
  const int stage = row_at(row).stage;
  double begin = state(row).free_at;
  for (size_t c : channels_of_[static_cast<size_t>(stage)]) {
    const Channel& channel = channels_[c];
    const Queue& queue = queues_[c][queue_of(c, task.micro_batch)];
    if (reads(channel, stage, task)) {
      const size_t next = queue.freed.size();
      if (next >= queue.sent.size() || queue.sent[next].first != task.micro_batch) {
        if (reason != nullptr) *reason = fmt::format("what stage {} sends", channel.from);
        return std::nullopt;
      }
      begin = std::max(begin, queue.sent[next].second);
    }
    if (writes(channel, stage, task)) {
      const int64_t gone = std::ssize(queue.sent) - channel.slots;
      if (gone >= std::ssize(queue.freed)) {
        if (reason != nullptr) *reason = fmt::format("a free slot to stage {}", channel.to);
        return std::nullopt;
      }
      if (gone >= 0) begin = std::max(begin, queue.freed[static_cast<size_t>(gone)]);
    }
  }
  return begin;
}

void Machine::execute(int row, const Task& task, double begin) {
  if (task.work != Work::update) return finish(row, task, begin);
  const int first = row - row_at(row).replica;
  for (int i = 0; i < schedule_.replicas_of(row_at(row).stage); ++i) {
    finish(first + i, task, begin);
  }
}

void Machine::finish(int row, const Task& task, double begin) {
  const int stage = row_at(row).stage;
  const double end = begin + (costs_.task ? costs_.task(stage, task) : default_cost(task));
  RowState& now = state(row);
  now.free_at = end;
  if (!schedule_.orders.empty()) {
    ++ordered_[device_of(row)];
    for (int other = 0; other < row_count(); ++other) {
      if (device_of(other) == device_of(row)) state(other).free_at = end;
    }
  }
  ++now.position;
  if (task.work == Work::forward) {
    ++now.forwards;
    now.versions.push_back(task.version);
  }
  if (task.work == Work::backward) ++now.backwards;
  if (task.work == Work::update) ++now.updates;
  for (size_t c : channels_of_[static_cast<size_t>(stage)]) {
    const Channel& channel = channels_[c];
    Queue& queue = queues_[c][queue_of(c, task.micro_batch)];
    if (reads(channel, stage, task)) queue.freed.push_back(end);
    if (writes(channel, stage, task)) {
      const double transfer = costs_.transfer ? costs_.transfer(channel) : 0;
      queue.sent.emplace_back(task.micro_batch, end + transfer);
    }
  }
  auto& ran = result_.rows[static_cast<size_t>(row)];
  result_.order.emplace_back(row, static_cast<int>(ran.size()));
  ran.push_back({task, begin, end});
  result_.busy[static_cast<size_t>(row)] += end - begin;
  result_.seconds = std::max(result_.seconds, end);
}

bool Machine::step_fixed() {
  bool moved = false;
  for (int row = 0; row < row_count(); ++row) {
    while (true) {
      const std::vector<Task> next = candidates(row);
      if (next.empty()) break;
      const auto begin = begin_of(row, next[0]);
      if (!begin) break;
      execute(row, next[0], *begin);
      moved = true;
    }
  }
  return moved;
}

bool Machine::step_free(Preference preference) {
  int best_row = -1;
  Task best;
  double best_begin = 0;
  for (int row = 0; row < row_count(); ++row) {
    std::vector<Task> next = candidates(row);
    if (preference == Preference::forward) std::reverse(next.begin(), next.end());
    for (const Task& task : next) {
      const auto begin = begin_of(row, task);
      if (!begin || (best_row >= 0 && *begin >= best_begin)) continue;
      best_row = row;
      best = task;
      best_begin = *begin;
    }
  }
  if (best_row >= 0) execute(best_row, best, best_begin);
  return best_row >= 0;
}

void Machine::run(Preference preference) {
  while (schedule_.fixed_order ? step_fixed() : step_free(preference)) {
  }
}

bool Machine::ended(int row) const { return state(row).position == row_at(row).tasks.size(); }

bool Machine::finished() const {
  for (int row = 0; row < row_count(); ++row) {
    if (!ended(row)) return false;
  }
  return true;
}

std::string Machine::describe_stuck() const {
  std::string list;
  for (int row = 0; row < row_count(); ++row) {
    if (ended(row)) continue;
    const std::vector<Task> next = candidates(row);
    std::string reason = "nothing that could come";
    Task task;
    if (!next.empty()) begin_of(row, task = next[0], &reason);
    list += fmt::format("{}stage {}{} before {} of micro-batch {} waits for {}",
                        list.empty() ? "" : ", ", row_at(row).stage,
                        schedule_.replicas_of(row_at(row).stage) > 1
                            ? fmt::format(" replica {}", row_at(row).replica)
                            : "",
                        name_of(task.work), task.micro_batch, reason);
  }
  return fmt::format("The schedule {} gets stuck with these channels: {}.", name_of(schedule_.kind),
                     list);
}

Simulation Machine::take() {
  std::stable_sort(result_.order.begin(), result_.order.end(), [&](const auto& a, const auto& b) {
    const auto begin = [&](const std::pair<int, int>& entry) {
      return result_.rows[static_cast<size_t>(entry.first)][static_cast<size_t>(entry.second)]
          .begin;
    };
    return begin(a) < begin(b);
  });
  return std::move(result_);
}

}  // namespace millrace::parallel
