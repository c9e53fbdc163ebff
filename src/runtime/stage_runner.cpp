#include "runtime/stage_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "runtime/finite_check.h"

namespace millrace {
namespace {

const Slot* find_result(const Program& program, const std::string& name) {
  for (const std::string& wanted : {name + ".total", name}) {
    for (const Slot& slot : program.results) {
      if (slot.name == wanted && slot.type.elements() == 1) return &slot;
    }
  }
  return nullptr;
}

// Empty if the program has none of them.
std::vector<const Slot*> results_of(const Program& program, const std::vector<std::string>& names) {
  std::vector<const Slot*> results;
  for (const std::string& name : names) results.push_back(find_result(program, name));
  const bool has_any =
      std::any_of(results.begin(), results.end(), [](const Slot* slot) { return slot != nullptr; });
  return has_any ? results : std::vector<const Slot*>{};
}

std::vector<int64_t> turns_of(int64_t micro_batches, int replicas, int replica) {
  std::vector<int64_t> own;
  for (int64_t m = replica; m < micro_batches; m += replicas) own.push_back(m);
  return own;
}

std::string_view trace_name(Work work, Phase phase) {
  return work == Work::backward_input     ? "backward to inputs"
         : work == Work::backward_weights ? "backward to weights"
                                          : name_of(phase);
}

TraceCategory category_of(const PhaseRange& range) {
  constexpr TraceCategory kCategories[] = {TraceCategory::forward, TraceCategory::backward,
                                           TraceCategory::update};
  return kCategories[static_cast<size_t>(range.phase)];
}

}  // namespace

StageRunner::StageRunner(const StageRunnerOptions& options, Session& session,
                         const Program& training, const Program* evaluation)
    : options_(options),
      session_(session),
      training_(training),
      evaluation_(evaluation),
      gate_(bell_),
      lanes_(options.lanes, session, training, evaluation, bell_),
      waits_(options.lanes.trace, options.lanes.trace_device),
      results_(results_of(training, options.results)),
      feed_(session.device().make_stream(StreamKind::direct)) {}

int StageRunner::row(const Schedule& schedule) const {
  return schedule.row_of(stage(), schedule.round_robin ? options_.lanes.member : 0);
}

const Row& StageRunner::table() const {
  return segment_.schedule->rows[static_cast<size_t>(row(*segment_.schedule))];
}

void StageRunner::begin_pass(const Program& program, std::vector<int64_t> own, int slots) {
  active_ = &program;
  own_ = std::move(own);
  fed_.clear();
  for (const Slot& slot : program.inputs) {
    if (!lanes_.receives(slot.name)) fed_.push_back(&slot);
  }
  gate_.open(slots);
}

void StageRunner::prepare(const Segment& segment) {
  segment_ = segment;
  const Schedule& schedule = *segment.schedule;
  const MemoryMap& memory = training_.memory;
  if (table().in_flight > memory.slots || table().versions > memory.versions) {
    throw std::logic_error(fmt::format(
        "stage {} was compiled with {} slots and {} versions, but its row needs {} and {}", stage(),
        memory.slots, memory.versions, table().in_flight, table().versions));
  }
  begin_pass(
      training_,
      turns_of(schedule.total_micro_batches(), schedule.replicas_of(stage()), table().replica),
      memory.slots);
  lanes_.expect(schedule.total_micro_batches(), true);
  updates_before_ += updates_;
  updates_ = 0;
  last_included_ = -1;
  accumulated_ = 0;
  versions_.clear();
  backwards_ = 0;
  reads_.reset();
  skips_.clear();
  pending_.reset();
  first_version_ = session_.current_version();
}

void StageRunner::prepare_evaluation(int64_t micro_batches) {
  if (evaluation_ == nullptr) throw std::logic_error("a stage has no program for evaluation");
  const RouteRequest& request = options_.lanes.request;
  const bool in_turn = request.round_robin;
  const auto replicas =
      static_cast<int>(in_turn ? request.devices.at(static_cast<size_t>(stage())).size() : 1);
  begin_pass(*evaluation_, turns_of(micro_batches, replicas, in_turn ? options_.lanes.member : 0),
             1);
  lanes_.expect(micro_batches, false);
}

void StageRunner::feed(int64_t number, const std::vector<FedInput>& inputs) {
  const int slots = active_ == &training_ ? training_.memory.slots : 1;
  const Event free = gate_.wait_for_slot(number);
  if (slots == 1) {
    offered_ = &inputs;
    gate_.written(number);
    gate_.wait_until_taken(number);
    return;
  }
  feed_->await(free);
  for (const FedInput& input : inputs) {
    session_.copy_in(*active_, *input.slot, static_cast<int>(number % slots), input.values, *feed_);
  }
  feed_->finish();
  gate_.written(number);
}

void StageRunner::take_inputs(int64_t number, int64_t micro_batch) {
  if (fed_.empty()) return;
  waits_.measure(WaitCause::input, micro_batch, [&] { gate_.wait_for_input(number); });
  if (offered_ == nullptr) return;
  Stream& stream = session_.stream();
  for (const FedInput& input : *offered_) {
    session_.copy_in(*active_, *input.slot, 0, input.values, stream);
  }
  stream.finish();
  offered_ = nullptr;
  gate_.taken(number);
}

int64_t StageRunner::number_of(int64_t micro_batch) const {
  return micro_batch / segment_.schedule->replicas_of(stage());
}

int StageRunner::slot_of(int64_t micro_batch) const {
  return static_cast<int>(number_of(micro_batch) % training_.memory.slots);
}

int StageRunner::version(int64_t of_segment) const {
  return static_cast<int>((first_version_ + of_segment) % training_.memory.versions);
}

StepState StageRunner::step_state(int64_t micro_batch) const {
  const int64_t step = segment_.first_step + micro_batch / segment_.schedule->micro_batches;
  StepState state;
  state.seed = segment_.seed;
  state.step = step;
  state.learning_rate = segment_.learning_rate ? segment_.learning_rate(step) : 0;
  state.loss_scale = segment_.loss_scale;
  state.skipped = skipped_;
  state.micro_batch = accumulated_;
  state.first_sample = micro_batch % segment_.schedule->micro_batches * options_.micro_batch_rows;
  return state;
}

void StageRunner::start() {
  for (int other = 0; other < training_.memory.versions; ++other) {
    session_.copy_version(first_version_, other);
  }
}

void StageRunner::execute(const Task& task) {
  switch (task.work) {
    case Work::forward:
      return forward(task);
    case Work::update:
      return update(task);
    default:
      return backward(task);
  }
}

void StageRunner::run_phase(const Task& task, const PhaseRange& range, const Frame& frame) {
  StepState state = step_state(task.micro_batch);
  const int64_t step = state.step;
  if (range.phase == Phase::update) state.step = updates();
  Frame traced = frame;
  traced.micro_batch = task.micro_batch;
  try {
    for (size_t begin = range.begin; begin < range.end;) {
      const PhaseRange part = part_from(begin, range);
      const TraceScope scope(options_.lanes.trace, options_.lanes.trace_device, category_of(part),
                             trace_name(task.work, part.phase), task.micro_batch);
      session_.run_phase(training_, part, traced, state);
      begin = part.end;
    }
  } catch (const Suspicious& found) {
    const bool alone = segment_.schedule->stages == 1;
    throw Suspicious(alone ? found.what() : fmt::format("{} in stage {}", found.what(), stage()),
                     step);
  }
}

// Instructions of one phase that follow each other are one event of the trace; a program that runs
// whole has several such in its range.
PhaseRange StageRunner::part_from(size_t begin, const PhaseRange& range) const {
  const bool whole = training_.phases.size() == 1;
  if (options_.lanes.trace == nullptr || !whole) return {range.phase, begin, range.end};
  const Phase phase = training_.instructions[begin].phase;
  size_t end = begin;
  while (end < range.end && training_.instructions[end].phase == phase) ++end;
  return {phase, begin, end};
}

void StageRunner::forward(const Task& task) {
  const int64_t m = task.micro_batch;
  const int slot = slot_of(m);
  const int64_t staleness = segment_.schedule->update_of(stage(), m) - task.version;
  if (staleness > table().versions || task.version > updates_) {
    throw std::logic_error(fmt::format(
        "micro-batch {} of stage {} would read weights that lack {} updates, more than {}", m,
        stage(), staleness, table().versions));
  }
  largest_staleness_ = std::max(largest_staleness_, staleness);
  versions_.push_back(task.version);
  take_inputs(number_of(m), m);
  lanes_.receive(training_, false, m, slot, waits_);
  run_phase(task, training_.phase(Phase::forward), {slot, version(task.version), 0});
  lanes_.send(training_, false, m, slot, waits_);
  read_results(task, slot);
}

void StageRunner::backward(const Task& task) {
  const int64_t m = task.micro_batch;
  const int slot = slot_of(m);
  if (updates_ - task.version >= training_.memory.versions) {
    throw std::logic_error(
        fmt::format("micro-batch {} of stage {} has lost its weights", m, stage()));
  }
  const bool weights = task.work == Work::backward_weights;
  const bool ends = task.work != Work::backward_input;
  if (!weights) lanes_.receive(training_, true, m, slot, waits_);
  Frame frame = {slot, version(task.version), 0};
  if (updates_in_backward()) {
    frame.newest_version = version(updates_);
    frame.new_version = version(updates_ + 1);
  }
  // A program that runs whole has done everything in its forward phase.
  if (training_.has_phase(Phase::backward)) {
    run_phase(task, weights ? training_.backward_weights : training_.phase(Phase::backward), frame);
  }
  if (!weights) lanes_.send(training_, true, m, slot, waits_);
  if (!ends) return;
  ++accumulated_;
  ++backwards_;
  if (updates_in_backward()) {
    ++updates_;
    accumulated_ = 0;
    const int64_t replicas = segment_.schedule->replicas_of(stage());
    const int64_t last =
        std::min(m / replicas * replicas + replicas, segment_.schedule->total_micro_batches()) - 1;
    note_skip(m / replicas * replicas, last);
  }
  gate_.release(number_of(m), session_.stream().record());
}

void StageRunner::update(const Task& task) {
  if (updates_in_backward()) {
    if (updates_ != task.version + 1) {
      throw std::logic_error("a stage that updates within backward has another update to make");
    }
    return;
  }
  prepare_accumulators(task);
  pending_ = task;
  const PhaseRange range = training_.phase(Phase::update);
  if (updates_with_others()) {
    run_update(range.begin, training_.agreement + 1);
    return;
  }
  run_update(range.begin, range.end);
  finish_update({});
}

bool StageRunner::updates_with_others() const {
  return training_.agreement > 0 && is_synchronous(segment_.schedule->kind);
}

void StageRunner::run_update(size_t begin, size_t end) {
  run_phase(*pending_, {Phase::update, begin, end},
            {0, version(updates_), version(updates_ + 1), version(updates_)});
}

// All devices of a stage have found the same.
Findings StageRunner::findings() {
  if (!pending_ || !updates_with_others() || options_.lanes.member > 0) return {};
  return find(session_, training_);
}

void StageRunner::finish_update(const Findings& all) {
  if (!pending_) return;
  if (updates_with_others()) {
    replace(session_, training_, all);
    run_update(training_.agreement + 1, training_.phase(Phase::update).end);
  }
  note_skip(last_included_ + 1, pending_->micro_batch);
  ++updates_;
  accumulated_ = 0;
  last_included_ = pending_->micro_batch;
  pending_.reset();
}

// What the check found is still there after an update.
void StageRunner::note_skip(int64_t first, int64_t last) {
  if (!checks_overflow(training_) || !has_overflowed(session_, training_)) return;
  ++skipped_;
  skips_.push_back({first, last, overflowed_before_sum(session_, training_),
                    overflowed_parameter(session_, training_)});
}

// Gradients are those of a mean over a step's samples; an update of more or fewer micro-batches
// than a step has takes the mean over what there is.
void StageRunner::prepare_accumulators(const Task& task) {
  const int64_t included = task.micro_batch - last_included_;
  const bool exact = included == segment_.schedule->micro_batches;
  if (exact && accumulated_ > 0) return;
  const float factor = accumulated_ == 0 ? 0.0f
                                         : static_cast<float>(segment_.schedule->micro_batches) /
                                               static_cast<float>(included);
  for (const Slot& slot : training_.state) {
    if (slot.role != Role::accumulator) continue;
    session_.stream().give(command::Scale{session_.address(training_, slot),
                                          slot.bytes / static_cast<int64_t>(sizeof(float)),
                                          factor});
  }
}

void StageRunner::read_results(const Task& task, int slot) {
  if (segment_.steps == nullptr || results_.empty()) return;
  const int64_t per_step = segment_.schedule->micro_batches;
  const int64_t m = task.micro_batch;
  if (!reads_) {
    reads_ = std::make_unique<StepReads>();
    reads_->results.reserve(static_cast<size_t>(per_step) * results_.size());
  }
  reads_->step = segment_.first_step + m / per_step;
  ++reads_->micro_batches;
  Stream& stream = session_.stream();
  for (const Slot* slot_of_result : results_) {
    float& value = reads_->results.emplace_back(std::numeric_limits<float>::quiet_NaN());
    if (slot_of_result == nullptr) continue;
    stream.give(
        command::Read{session_.address(training_, *slot_of_result, slot), &value, sizeof(float)});
  }
  const int64_t next = m + segment_.schedule->replicas_of(stage());
  if (next / per_step == m / per_step) return;
  reads_->read = stream.record();
  segment_.steps->push(std::move(reads_));
}

void StageRunner::finish() {
  lanes_.drain(waits_);
  session_.stream().finish();
  session_.set_current_version(version(updates_));
}

void StageRunner::finish_evaluation() {
  lanes_.drain(waits_);
  session_.stream().finish();
}

void StageRunner::evaluate(int64_t micro_batch) {
  const RouteRequest& request = options_.lanes.request;
  const int64_t replicas =
      request.round_robin ? std::ssize(request.devices.at(static_cast<size_t>(stage()))) : 1;
  const int64_t number = micro_batch / replicas;
  take_inputs(number, micro_batch);
  lanes_.receive(*evaluation_, false, micro_batch, 0, waits_);
  {
    const TraceScope scope(options_.lanes.trace, options_.lanes.trace_device,
                           TraceCategory::forward, "evaluation", micro_batch);
    const int current = session_.current_version();
    session_.run_phase(*evaluation_, evaluation_->phase(Phase::forward), {0, current, current}, {});
  }
  lanes_.send(*evaluation_, false, micro_batch, 0, waits_);
  gate_.release(number, session_.stream().record());
}

}  // namespace millrace
