#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

#include "parallel/machine.h"

namespace millrace::parallel {
namespace {

// Follows one row and keeps what it has done. Each function returns a fault or an empty string.
class RowCheck {
 public:
  RowCheck(const Schedule& schedule, int index)
      : schedule_(schedule), index_(index), row_(schedule.rows[static_cast<size_t>(index)]) {
    const auto count = static_cast<size_t>(schedule.total_micro_batches());
    done_.resize(count);
    version_.resize(count, -1);
  }

  std::string run() {
    for (const Task& task : row_.tasks) {
      const std::string fault = follow(task);
      if (!fault.empty()) {
        return fmt::format("{} of micro-batch {}: {}", name_of(task.work), task.micro_batch, fault);
      }
    }
    if (updates_ != schedule_.updates_of(row_.stage)) {
      return fmt::format("it has {} updates instead of {}", updates_,
                         schedule_.updates_of(row_.stage));
    }
    for (int64_t b = 0; b < schedule_.total_micro_batches(); ++b) {
      const bool complete = done_[static_cast<size_t>(b)] == (kForward | kInput | kWeights);
      if (own(b) && !complete) return fmt::format("micro-batch {} does not come to its end", b);
    }
    return {};
  }

 private:
  static constexpr int kForward = 1;
  static constexpr int kInput = 2;
  static constexpr int kWeights = 4;

  bool own(int64_t micro_batch) const {
    return schedule_.row_of(row_.stage, micro_batch) == index_;
  }

  std::string follow(const Task& task) {
    if (task.micro_batch < 0 || task.micro_batch >= schedule_.total_micro_batches()) {
      return "there is no such micro-batch";
    }
    if (task.work == Work::update) return update(task);
    if (!own(task.micro_batch)) return "it belongs to another replica";
    switch (task.work) {
      case Work::forward:
        return forward(task);
      case Work::backward:
        return backward(task, kForward, kInput | kWeights);
      case Work::backward_input:
        return backward(task, kForward, kInput);
      default:
        return backward(task, kForward | kInput, kWeights);
    }
  }

  std::string forward(const Task& task) {
    int& done = done_[static_cast<size_t>(task.micro_batch)];
    if (done != 0) return "it runs a second time";
    if (task.micro_batch <= last_forward_) return "it comes after a later one";
    last_forward_ = task.micro_batch;
    done = kForward;
    version_[static_cast<size_t>(task.micro_batch)] = task.version;
    if (++alive_ > row_.in_flight) {
      return fmt::format("{} are in flight, but {} are declared", alive_, row_.in_flight);
    }
    const std::string fault = rule(task);
    return fault.empty() ? kept(task) : fault;
  }

  std::string backward(const Task& task, int needed, int adds) {
    int& done = done_[static_cast<size_t>(task.micro_batch)];
    if (done != needed) return "it does not follow what it needs, or runs a second time";
    if (schedule_.update_of(row_.stage, task.micro_batch) < updates_) {
      return "its update has already been";
    }
    if (task.version != version_[static_cast<size_t>(task.micro_batch)]) {
      return "it reads other weights than its forward";
    }
    done |= adds;
    if (adds == kInput) ++waiting_;
    if (adds == kWeights) --waiting_;
    if (waiting_ > row_.waiting_weights) return "more wait for weights' gradients than declared";
    if ((adds & kWeights) != 0) --alive_;
    return kept(task);
  }

  std::string update(const Task& task) {
    if (task.version != updates_) return "it is out of turn";
    for (int64_t b = checked_; b <= task.micro_batch; ++b) {
      if (own(b) && (done_[static_cast<size_t>(b)] & kWeights) == 0) {
        return fmt::format("it comes before the gradient of micro-batch {}", b);
      }
    }
    checked_ = task.micro_batch + 1;
    const bool last = checked_ == schedule_.total_micro_batches() ||
                      schedule_.update_of(row_.stage, checked_) > updates_;
    if (!last || schedule_.update_of(row_.stage, task.micro_batch) != updates_) {
      return "it includes other micro-batches than it should";
    }
    ++updates_;
    return {};
  }

  // The version exists and has not been given up.
  std::string kept(const Task& task) const {
    if (task.version < 0 || task.version > updates_)
      return "it reads weights that do not exist yet";
    if (updates_ - task.version >= row_.versions) return "it reads weights that are kept no longer";
    return {};
  }

  std::string rule(const Task& task) const {
    const int64_t step = schedule_.update_of(row_.stage, task.micro_batch);
    if (is_synchronous(schedule_.kind) && task.version != step) {
      return "it reads the weights of another step";
    }
    if (schedule_.kind == ScheduleKind::two_bw && task.version != std::max<int64_t>(0, step - 1)) {
      return "it does not read the weights of the step before";
    }
    if (step - task.version > row_.versions) return "its weights are staler than the bound";
    return {};
  }

  const Schedule& schedule_;
  const int index_;
  const Row& row_;
  std::vector<int> done_;
  std::vector<int64_t> version_;
  int64_t last_forward_ = -1;
  int64_t alive_ = 0;
  int64_t waiting_ = 0;
  int64_t updates_ = 0;
  int64_t checked_ = 0;  // micro-batches that earlier updates include
};

std::string check_rows(const Schedule& schedule) {
  int64_t expected = 0;
  for (int stage = 0; stage < schedule.stages; ++stage) expected += schedule.replicas_of(stage);
  if (std::ssize(schedule.rows) != expected) {
    return fmt::format("The schedule {} has {} rows instead of {}.", name_of(schedule.kind),
                       schedule.rows.size(), expected);
  }
  for (int index = 0; index < std::ssize(schedule.rows); ++index) {
    const Row& row = schedule.rows[static_cast<size_t>(index)];
    std::string fault;
    if (row.stage < 0 || row.stage >= schedule.stages || row.replica < 0 ||
        index != schedule.row_of(row.stage, row.replica)) {
      fault = "it stands in the wrong place";
    } else {
      fault = RowCheck(schedule, index).run();
    }
    if (fault.empty()) continue;
    return fmt::format("The schedule {} is wrong in row {} (stage {}, replica {}): {}.",
                       name_of(schedule.kind), index, row.stage, row.replica, fault);
  }
  return {};
}

std::string check_channels(const Schedule& schedule, const std::vector<Channel>& channels) {
  std::set<std::pair<int, int>> seen;
  for (const Channel& channel : channels) {
    const bool inside = channel.from >= 0 && channel.to >= 0 && channel.from < schedule.stages &&
                        channel.to < schedule.stages && channel.from != channel.to;
    if (!inside || channel.slots < 1 || !seen.insert({channel.from, channel.to}).second) {
      return fmt::format(
          "The channel from stage {} to stage {} with {} slots is not possible, or there twice.",
          channel.from, channel.to, channel.slots);
    }
  }
  return {};
}

}  // namespace

std::string check(const Schedule& schedule, const std::vector<Channel>& channels) {
  std::string fault = check_rows(schedule);
  if (fault.empty()) fault = check_channels(schedule, channels);
  if (!fault.empty()) return fault;
  const Costs costs;
  for (const auto preference : {Machine::Preference::backward, Machine::Preference::forward}) {
    Machine machine(schedule, channels, costs);
    machine.run(preference);
    if (!machine.finished()) return machine.describe_stuck();
    if (schedule.fixed_order) break;
  }
  return {};
}

}  // namespace millrace::parallel
