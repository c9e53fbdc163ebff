#include "runtime/stage_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "runtime/finite_check.h"

namespace millrace::runtime {
namespace {

const compile::Slot* find_result(const compile::Program& program, const std::string& name) {
  for (const std::string& wanted : {name + ".total", name}) {
    for (const compile::Slot& slot : program.results) {
      if (slot.name == wanted && slot.type.elements() == 1) return &slot;
    }
  }
  return nullptr;
}

// Empty if the program has none of them.
std::vector<const compile::Slot*> results_of(const compile::Program& program,
                                             const std::vector<std::string>& names) {
  std::vector<const compile::Slot*> results;
  for (const std::string& name : names) results.push_back(find_result(program, name));
  const bool has_any = std::any_of(results.begin(), results.end(),
                                   [](const compile::Slot* slot) { return slot != nullptr; });
  return has_any ? results : std::vector<const compile::Slot*>{};
}

std::string_view trace_name(parallel::Work work) {
  return work == parallel::Work::backward_input     ? "backward to inputs"
         : work == parallel::Work::backward_weights ? "backward to weights"
                                                    : parallel::name_of(work);
}

TraceCategory category_of(parallel::Work work) {
  if (work == parallel::Work::forward) return TraceCategory::forward;
  return work == parallel::Work::update ? TraceCategory::update : TraceCategory::backward;
}

parallel::Work work_of(graph::Phase phase) {
  constexpr parallel::Work kWorks[] = {parallel::Work::forward, parallel::Work::backward,
                                       parallel::Work::update};
  return kWorks[static_cast<size_t>(phase)];
}

}  // namespace

StageRunner::StageRunner(const StageRunnerOptions& options, Session& session,
                         const compile::Program& training, const compile::Program* evaluation)
    : options_(options),
      session_(session),
      training_(training),
      evaluation_(evaluation),
      gate_(bell_),
      waits_(options.trace, options.trace_device),
      channels_(session.device(), lanes_of(training), waits_),
      results_(results_of(training, options.results)),
      feed_(session.device().make_stream(backend::StreamKind::direct)) {
  if (evaluation != nullptr && evaluation != &training) {
    channels_of_evaluation_ =
        std::make_unique<DeviceChannels>(session.device(), lanes_of(*evaluation), waits_);
  }
}

DeviceChannelOptions StageRunner::lanes_of(const compile::Program& program) {
  return {.ends = program.channels,
          .memory = session_.channels(program),
          .messages = options_.messages,
          .loopbacks = options_.loopbacks,
          .bell = &bell_,
          .trace = options_.trace,
          .trace_device = options_.trace_device};
}

DeviceChannels& StageRunner::channels_of(const compile::Program& program) {
  return &program == &training_ ? channels_ : *channels_of_evaluation_;
}

int StageRunner::row(const parallel::Schedule& schedule) const {
  return schedule.row_of(stage(), options_.turn.index);
}

const parallel::Row& StageRunner::table() const {
  return segment_.schedule->rows[static_cast<size_t>(row(*segment_.schedule))];
}

void StageRunner::begin_pass(const compile::Program& program, int64_t micro_batches, int slots) {
  active_ = &program;
  DeviceChannels& channels = channels_of(program);
  session_.set_channels(&channels);
  own_.clear();
  for (int64_t m = options_.turn.index; m < micro_batches; m += options_.turn.every) {
    own_.push_back(m);
  }
  fed_.clear();
  for (const compile::Slot& slot : program.inputs) {
    if (!program.receives(slot.name)) fed_.push_back(&slot);
  }
  for (const compile::Instruction& instruction : program.instructions) {
    if (instruction.kind != compile::InstructionKind::receive) continue;
    const auto count =
        std::count_if(own_.begin(), own_.end(), [&](int64_t m) { return instruction.turn.has(m); });
    channels.expect(instruction.channel, count);
  }
  gate_.open(slots);
}

void StageRunner::prepare(const Segment& segment) {
  segment_ = segment;
  const parallel::Schedule& schedule = *segment.schedule;
  const compile::MemoryMap& memory = training_.memory;
  if (table().in_flight > memory.slots || table().versions > memory.versions) {
    throw std::logic_error(fmt::format(
        "stage {} was compiled with {} slots and {} versions, but its row needs {} and {}", stage(),
        memory.slots, memory.versions, table().in_flight, table().versions));
  }
  begin_pass(training_, schedule.total_micro_batches(), memory.slots);
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
  begin_pass(*evaluation_, micro_batches, 1);
}

void StageRunner::feed(int64_t number, const std::vector<FedInput>& inputs) {
  const int slots = active_ == &training_ ? training_.memory.slots : 1;
  const backend::Event free = gate_.wait_for_slot(number);
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
  backend::Stream& stream = session_.stream();
  for (const FedInput& input : *offered_) {
    session_.copy_in(*active_, *input.slot, 0, input.values, stream);
  }
  stream.finish();
  offered_ = nullptr;
  gate_.taken(number);
}

int StageRunner::slot_of(int64_t micro_batch) const {
  return static_cast<int>(number_of(micro_batch) % training_.memory.slots);
}

int StageRunner::version(int64_t of_segment) const {
  return static_cast<int>((first_version_ + of_segment) % training_.memory.versions);
}

kernels::StepState StageRunner::step_state(int64_t micro_batch) const {
  const int64_t step = segment_.first_step + micro_batch / segment_.schedule->micro_batches;
  kernels::StepState state;
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

void StageRunner::execute(const parallel::Task& task) {
  switch (task.work) {
    case parallel::Work::forward:
      return forward(task);
    case parallel::Work::update:
      return update(task);
    default:
      return backward(task);
  }
}

void StageRunner::run_task(const parallel::Task& task, const compile::TaskRange& range,
                           const Frame& frame) {
  kernels::StepState state = step_state(task.micro_batch);
  const int64_t step = state.step;
  if (task.work == parallel::Work::update) state.step = updates();
  Frame numbered = frame;
  numbered.micro_batch = task.micro_batch;
  try {
    compile::TaskRange left = range;
    while (left.begin < left.end) left.begin = run_part(training_, left, numbered, state);
  } catch (const kernels::Suspicious& found) {
    const bool alone = segment_.schedule->stages == 1;
    throw kernels::Suspicious(
        alone ? found.what() : fmt::format("{} in stage {}", found.what(), stage()), step);
  }
}

// What computes is one event of the trace; a training program that runs whole has one for each
// phase's instructions that follow each other. Messages are waited for, which are other events.
size_t StageRunner::run_part(const compile::Program& program, const compile::TaskRange& range,
                             const Frame& frame, const kernels::StepState& state) {
  if (options_.trace == nullptr) {
    session_.run_task(program, range, frame, state);
    return range.end;
  }
  const compile::Instruction& first = program.instructions[range.begin];
  const bool by_phase = program.runs_whole() && &program == &training_;
  compile::TaskRange part = {by_phase ? work_of(first.phase) : range.work, range.begin,
                             range.begin};
  for (; part.end < range.end; ++part.end) {
    const compile::Instruction& next = program.instructions[part.end];
    if (next.is_of_message() != first.is_of_message()) break;
    if (by_phase && next.phase != first.phase) break;
  }
  const bool evaluates = &program == evaluation_;
  const TraceScope scope(first.is_of_message() ? nullptr : options_.trace, options_.trace_device,
                         category_of(part.work), evaluates ? "evaluation" : trace_name(part.work),
                         frame.micro_batch);
  session_.run_task(program, part, frame, state);
  return part.end;
}

void StageRunner::forward(const parallel::Task& task) {
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
  run_task(task, training_.task(parallel::Work::forward), {slot, version(task.version), 0});
  read_results(task, slot);
}

void StageRunner::backward(const parallel::Task& task) {
  const int64_t m = task.micro_batch;
  const int slot = slot_of(m);
  if (updates_ - task.version >= training_.memory.versions) {
    throw std::logic_error(
        fmt::format("micro-batch {} of stage {} has lost its weights", m, stage()));
  }
  Frame frame = {slot, version(task.version), 0};
  if (updates_in_backward()) {
    frame.newest_version = version(updates_);
    frame.new_version = version(updates_ + 1);
  }
  // A program that runs whole has done everything already.
  if (!training_.runs_whole()) run_task(task, training_.task(task.work), frame);
  if (task.work == parallel::Work::backward_input) return;
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

void StageRunner::update(const parallel::Task& task) {
  if (updates_in_backward()) {
    if (updates_ != task.version + 1) {
      throw std::logic_error("a stage that updates within backward has another update to make");
    }
    return;
  }
  prepare_accumulators(task);
  pending_ = task;
  const compile::TaskRange& range = training_.task(parallel::Work::update);
  if (updates_with_others()) {
    run_update(range.begin, training_.agreement + 1);
    return;
  }
  run_update(range.begin, range.end);
  finish_update({});
}

bool StageRunner::updates_with_others() const {
  return training_.agreement > 0 && parallel::is_synchronous(segment_.schedule->kind);
}

void StageRunner::run_update(size_t begin, size_t end) {
  run_task(*pending_, {parallel::Work::update, begin, end},
           {0, version(updates_), version(updates_ + 1), version(updates_)});
}

// All devices of a stage have found the same. Each waits for it and for what it has sent, even if
// it trains nothing: what others need of its streams has run before it waits for the others.
Findings StageRunner::findings() {
  channels_.drain();
  if (!pending_ || !updates_with_others()) return {};
  const Findings own = find(session_, training_);
  return options_.member > 0 ? Findings{} : own;
}

void StageRunner::finish_update(const Findings& all) {
  if (!pending_) return;
  if (updates_with_others()) {
    replace(session_, training_, all);
    run_update(training_.agreement + 1, training_.task(parallel::Work::update).end);
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
void StageRunner::prepare_accumulators(const parallel::Task& task) {
  const int64_t included = task.micro_batch - last_included_;
  const bool exact = included == segment_.schedule->micro_batches;
  if (exact && accumulated_ > 0) return;
  const float factor = accumulated_ == 0 ? 0.0f
                                         : static_cast<float>(segment_.schedule->micro_batches) /
                                               static_cast<float>(included);
  for (const compile::Slot& slot : training_.state) {
    if (slot.role != graph::Role::accumulator) continue;
    session_.stream().give(backend::command::Scale{session_.address(training_, slot),
                                                   slot.bytes / static_cast<int64_t>(sizeof(float)),
                                                   factor});
  }
}

void StageRunner::read_results(const parallel::Task& task, int slot) {
  if (segment_.steps == nullptr || results_.empty()) return;
  const int64_t per_step = segment_.schedule->micro_batches;
  const int64_t m = task.micro_batch;
  if (!reads_) {
    reads_ = std::make_unique<StepReads>();
    reads_->results.reserve(static_cast<size_t>(per_step) * results_.size());
  }
  reads_->step = segment_.first_step + m / per_step;
  ++reads_->micro_batches;
  backend::Stream& stream = session_.stream();
  for (const compile::Slot* slot_of_result : results_) {
    float& value = reads_->results.emplace_back(std::numeric_limits<float>::quiet_NaN());
    if (slot_of_result == nullptr) continue;
    stream.give(backend::command::Read{session_.address(training_, *slot_of_result, slot), &value,
                                       sizeof(float)});
  }
  const int64_t next = m + segment_.schedule->replicas_of(stage());
  if (next / per_step == m / per_step) return;
  reads_->read = stream.record();
  segment_.steps->push(std::move(reads_));
}

void StageRunner::finish() {
  channels_.drain();
  session_.stream().finish();
  session_.set_current_version(version(updates_));
}

void StageRunner::finish_evaluation() {
  channels_of(*evaluation_).drain();
  session_.stream().finish();
}

void StageRunner::evaluate(int64_t micro_batch) {
  const int64_t number = number_of(micro_batch);
  take_inputs(number, micro_batch);
  const int current = session_.current_version();
  const Frame frame = {.version = current, .new_version = current, .micro_batch = micro_batch};
  compile::TaskRange range = evaluation_->task(parallel::Work::forward);
  while (range.begin < range.end) range.begin = run_part(*evaluation_, range, frame, {});
  gate_.release(number, session_.stream().record());
}

}  // namespace millrace::runtime
