#include "parallel/schedule.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "base/text.h"

namespace millrace::parallel {
namespace {

constexpr int kMostRows = 4096;
constexpr int64_t kMostTasks = 4'000'000;
constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

struct KindFacts {
  ScheduleKind kind;
  std::string_view name;
  bool synchronous = false;
};

constexpr KindFacts kKinds[] = {
    {.kind = ScheduleKind::gpipe, .name = "gpipe", .synchronous = true},
    {.kind = ScheduleKind::one_f_one_b_flush, .name = "1f1b-flush", .synchronous = true},
    {.kind = ScheduleKind::zero_bubble, .name = "zero-bubble", .synchronous = true},
    {.kind = ScheduleKind::interleaved, .name = "interleaved", .synchronous = true},
    {.kind = ScheduleKind::one_f_one_b, .name = "1f1b"},
    {.kind = ScheduleKind::ssp, .name = "ssp"},
    {.kind = ScheduleKind::two_bw, .name = "2bw"}};

const KindFacts& facts_of(ScheduleKind kind) {
  return *std::find_if(std::begin(kKinds), std::end(kKinds),
                       [&](const KindFacts& entry) { return entry.kind == kind; });
}

int64_t divide_up(int64_t count, int64_t by) { return (count + by - 1) / by; }

void check_request(const ScheduleRequest& request) {
  if (request.stages < 1 || request.micro_batches < 1 || request.steps < 1) {
    fail_input(
        "A schedule of {} stages, {} micro-batches and {} steps makes no sense; each must be at "
        "least 1.",
        request.stages, request.micro_batches, request.steps);
  }
  if (!request.replicas.empty() && std::ssize(request.replicas) != request.stages) {
    fail_input("A schedule of {} stages has replicas for {}; give one number per stage.",
               request.stages, request.replicas.size());
  }
  int64_t rows = request.stages;
  for (int count : request.replicas) {
    if (count < 1) fail_input("A stage has {} replicas; it must have at least 1.", count);
    rows += count;
  }
  if (rows > 2 * kMostRows || request.stages > kMostRows) {
    fail_input("A schedule has more than {} stages and replicas.", kMostRows);
  }
  if (request.micro_batches > kMostTasks || request.steps > kMostTasks ||
      request.micro_batches * request.steps > kMostTasks / (4 * request.stages)) {
    fail_input(
        "A schedule of {} micro-batches in {} steps on {} stages is too long for one table; drain "
        "the pipeline more often.",
        request.micro_batches, request.steps, request.stages);
  }
}

// Writes the tasks of one row.
class RowBuilder {
 public:
  RowBuilder(const Schedule& schedule, const std::vector<int>& warm_up_replicas, int stage,
             int replica)
      : schedule_(schedule),
        replicas_(schedule.replicas_of(stage)),
        warm_up_(warm_up(warm_up_replicas, stage)),
        lag_(std::max<int64_t>(0, warm_up(warm_up_replicas, 0) - warm_up_)) {
    row_.stage = stage;
    row_.replica = replica;
  }

  Row take() {
    if (is_synchronous(schedule_.kind)) {
      for (int64_t step = 0; step < schedule_.steps; ++step) {
        add_run(step * schedule_.micro_batches, (step + 1) * schedule_.micro_batches);
        add_updates(step + 1);
      }
    } else {
      add_run(0, schedule_.total_micro_batches());
      add_updates(schedule_.updates_of(row_.stage));
    }
    declare();
    return std::move(row_);
  }

 private:
  // This row's micro-batches among those from `begin` to `end`.
  void add_run(int64_t begin, int64_t end) {
    own_.clear();
    versions_.clear();
    const int64_t first = begin + (row_.replica - begin % replicas_ + replicas_) % replicas_;
    for (int64_t b = first; b < end; b += replicas_) own_.push_back(b);
    most_ = std::max(most_, std::ssize(own_));
    const int64_t warm = schedule_.kind == ScheduleKind::gpipe ? std::ssize(own_) : warm_up_;
    int64_t forwards = 0;
    int64_t weights = 0;
    for (; forwards < std::min(warm, std::ssize(own_)); ++forwards) add_forward(forwards);
    for (int64_t i = 0; i < std::ssize(own_); ++i) {
      if (forwards < std::ssize(own_)) add_forward(forwards++);
      add_backward(i);
      if (schedule_.kind == ScheduleKind::zero_bubble && i >= lag_) add_weights(weights++);
      const int64_t next = i + 1 < std::ssize(own_) ? own_[static_cast<size_t>(i) + 1] : kNever;
      if (!is_synchronous(schedule_.kind) && next != kNever) {
        add_updates(schedule_.update_of(row_.stage, next));
      }
    }
    if (schedule_.kind != ScheduleKind::zero_bubble) return;
    while (weights < std::ssize(own_)) add_weights(weights++);
  }

  int64_t version_of(int64_t micro_batch) const {
    if (schedule_.kind != ScheduleKind::two_bw) return updates_;
    return std::max<int64_t>(0, schedule_.update_of(row_.stage, micro_batch) - 1);
  }

  void add_forward(int64_t i) {
    const int64_t b = own_[static_cast<size_t>(i)];
    versions_.push_back(version_of(b));
    row_.tasks.push_back({Work::forward, b, versions_.back()});
  }

  void add_backward(int64_t i) {
    const bool apart = schedule_.kind == ScheduleKind::zero_bubble;
    add_second(apart ? Work::backward_input : Work::backward, i);
  }

  void add_weights(int64_t i) { add_second(Work::backward_weights, i); }

  // What follows a forward reads the version that the forward read.
  void add_second(Work work, int64_t i) {
    row_.tasks.push_back({work, own_[static_cast<size_t>(i)], versions_[static_cast<size_t>(i)]});
  }

  void add_updates(int64_t until) {
    for (; updates_ < until; ++updates_) {
      const int64_t per_update =
          schedule_.kind == ScheduleKind::one_f_one_b || schedule_.kind == ScheduleKind::ssp
              ? schedule_.micro_batches * replicas_
              : schedule_.micro_batches;
      const int64_t end = std::min((updates_ + 1) * per_update, schedule_.total_micro_batches());
      row_.tasks.push_back({Work::update, end - 1, updates_});
    }
  }

  void declare() {
    row_.in_flight = std::min(most_, warm_up_ + 1);
    switch (schedule_.kind) {
      case ScheduleKind::gpipe:
        row_.in_flight = most_;
        break;
      case ScheduleKind::zero_bubble:
        row_.in_flight = std::min(most_, warm_up_ + 1 + lag_);
        row_.waiting_weights = std::min(most_, lag_ + 1);
        break;
      case ScheduleKind::one_f_one_b:
      case ScheduleKind::ssp:
        row_.versions = 1 + divide_up(warm_up_, schedule_.micro_batches);
        break;
      case ScheduleKind::two_bw:
        row_.versions = 2;
        break;
      case ScheduleKind::one_f_one_b_flush:
      case ScheduleKind::interleaved:
        break;
    }
  }

  const Schedule& schedule_;
  const int64_t replicas_;
  const int64_t warm_up_;
  const int64_t lag_;  // micro-batches by which weights' gradients follow, zero bubble
  Row row_;
  std::vector<int64_t> own_;       // micro-batches of the run
  std::vector<int64_t> versions_;  // of each forward of the run
  int64_t most_ = 0;
  int64_t updates_ = 0;
};

// Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using
// Megatron-LM", section 2.2.2. A device works on groups of as many micro-batches as there are
// devices: such a group forward through its first stage, its second and so on, backward through its
// last stage first; and when as many are under way as keep the devices behind it busy, one forward
// and one backward in turn.
class TurnsBuilder {
 public:
  TurnsBuilder(const Schedule& schedule, int devices)
      : schedule_(schedule), devices_(devices), chunks_(schedule.stages / devices) {}

  std::vector<RowTask> order_of(int device) const {
    std::vector<RowTask> order;
    const int64_t all = schedule_.micro_batches * chunks_;
    const int64_t behind = devices_ - device - 1;
    const int64_t ahead = chunks_ == 1 ? behind : 2 * behind + int64_t{chunks_ - 1} * devices_;
    const int64_t warm = std::min(all, ahead);
    for (int64_t step = 0; step < schedule_.steps; ++step) {
      for (int64_t i = 0; i < all + warm; ++i) {
        if (i < all) order.push_back(task(Work::forward, step, i, device));
        if (i >= warm) order.push_back(task(Work::backward, step, i - warm, device));
      }
      for (int chunk = 0; chunk < chunks_; ++chunk) {
        const int64_t last = (step + 1) * schedule_.micro_batches - 1;
        order.push_back({chunk * devices_ + device, {Work::update, last, step}});
      }
    }
    return order;
  }

 private:
  RowTask task(Work work, int64_t step, int64_t number, int device) const {
    const int64_t group = number / (int64_t{devices_} * chunks_);
    const auto within = static_cast<int>(number % (int64_t{devices_} * chunks_));
    const int turn = within / devices_;
    const int chunk = work == Work::forward ? turn : chunks_ - 1 - turn;
    const int64_t m = step * schedule_.micro_batches + group * devices_ + within % devices_;
    return {chunk * devices_ + device, {work, m, step}};
  }

  const Schedule& schedule_;
  const int devices_;
  const int chunks_;  // stages of each device
};

Row row_within(const std::vector<RowTask>& order, int stage) {
  Row row;
  row.stage = stage;
  int64_t alive = 0;
  for (const RowTask& one : order) {
    if (one.row != stage) continue;
    row.tasks.push_back(one.task);
    if (one.task.work == Work::forward) row.in_flight = std::max(row.in_flight, ++alive);
    if (one.task.work == Work::backward) --alive;
  }
  return row;
}

void take_in_turns(Schedule& schedule, int turns) {
  if (turns < 1 || schedule.stages % turns != 0 || schedule.round_robin) {
    fail_input(
        "The schedule interleaved needs stages that devices take in turn, each as often as the "
        "others, such as ‹placement› 0:0.0:1.0:0.0:1, and split replicas.");
  }
  if (schedule.micro_batches % turns != 0) {
    fail_input(
        "The schedule interleaved needs micro-batches in groups of {}, one for each device of the "
        "row, but has {}; change ‹microbatches›.",
        turns, schedule.micro_batches);
  }
  const TurnsBuilder builder(schedule, turns);
  for (int device = 0; device < turns; ++device)
    schedule.orders.push_back(builder.order_of(device));
  for (int stage = 0; stage < schedule.stages; ++stage) {
    const auto device = static_cast<size_t>(stage % turns);
    schedule.rows.push_back(row_within(schedule.orders[device], stage));
  }
}

}  // namespace

std::string_view name_of(ScheduleKind kind) { return facts_of(kind).name; }

std::string schedule_names() {
  std::vector<std::string> names;
  for (const KindFacts& entry : kKinds) names.emplace_back(entry.name);
  return join_choices(names);
}

std::string schedule_names(bool synchronous) {
  std::vector<std::string> names;
  for (const KindFacts& entry : kKinds) {
    if (entry.synchronous == synchronous) names.emplace_back(entry.name);
  }
  return join_choices(names);
}

ScheduleKind parse_schedule(std::string_view name) {
  std::vector<std::string> names;
  for (const KindFacts& entry : kKinds) {
    if (entry.name == name) return entry.kind;
    names.emplace_back(entry.name);
  }
  const std::string close = nearest(name, names);
  fail_input("The schedule '{}' is not known; choose {}{}.", name, schedule_names(),
             close.empty() ? "" : fmt::format(" (did you mean '{}'?)", close));
}

bool is_synchronous(ScheduleKind kind) { return facts_of(kind).synchronous; }

std::string_view name_of(Work work) {
  constexpr std::string_view kNames[] = {"forward", "backward", "backward_input",
                                         "backward_weights", "update"};
  return kNames[static_cast<size_t>(work)];
}

int Schedule::replicas_of(int stage) const {
  return round_robin ? replicas.at(static_cast<size_t>(stage)) : 1;
}

int Schedule::row_of(int stage, int64_t micro_batch) const {
  int first = stage;
  if (round_robin) first = std::accumulate(replicas.begin(), replicas.begin() + stage, 0);
  return first + static_cast<int>(micro_batch % replicas_of(stage));
}

bool Schedule::updates_at_once(const Row& row) const {
  if (replicas_of(row.stage) > 1) return false;
  for (size_t i = 0; i < row.tasks.size(); ++i) {
    if (row.tasks[i].work == Work::backward_input) return false;
    if (row.tasks[i].work == Work::backward &&
        (i + 1 == row.tasks.size() || row.tasks[i + 1].work != Work::update)) {
      return false;
    }
  }
  return true;
}

int64_t Schedule::update_of(int stage, int64_t micro_batch) const {
  const bool per_replica = kind == ScheduleKind::one_f_one_b || kind == ScheduleKind::ssp;
  return micro_batch / (micro_batches * (per_replica ? replicas_of(stage) : 1));
}

int64_t Schedule::updates_of(int stage) const {
  return update_of(stage, total_micro_batches() - 1) + 1;
}

int64_t warm_up(const std::vector<int>& replicas, int stage) {
  const int behind = std::accumulate(replicas.begin() + stage, replicas.end(), -1);
  return behind / replicas.at(static_cast<size_t>(stage));
}

Schedule make_schedule(const ScheduleRequest& request) {
  check_request(request);
  Schedule schedule;
  schedule.kind = request.kind;
  schedule.stages = request.stages;
  schedule.micro_batches = request.micro_batches;
  schedule.steps = request.steps;
  schedule.replicas = request.replicas;
  if (schedule.replicas.empty()) schedule.replicas.assign(static_cast<size_t>(request.stages), 1);
  schedule.round_robin = request.round_robin;
  schedule.fixed_order = request.kind != ScheduleKind::ssp || request.static_scheduling;

  if (request.kind == ScheduleKind::interleaved) {
    take_in_turns(schedule, request.turns);
    return schedule;
  }
  std::vector<int> in_turn = schedule.replicas;
  if (!schedule.round_robin) in_turn.assign(in_turn.size(), 1);
  const int workers = std::accumulate(in_turn.begin(), in_turn.end(), 0);
  if (request.kind == ScheduleKind::two_bw && request.micro_batches < workers) {
    fail_input(
        "The schedule 2bw needs at least as many micro-batches as {} in a row, {}, but has {}; "
        "raise ‹microbatches›.",
        schedule.round_robin ? "replicas" : "stages", workers, request.micro_batches);
  }
  for (int stage = 0; stage < schedule.stages; ++stage) {
    for (int replica = 0; replica < schedule.replicas_of(stage); ++replica) {
      schedule.rows.push_back(RowBuilder(schedule, in_turn, stage, replica).take());
    }
  }
  return schedule;
}

}  // namespace millrace::parallel
