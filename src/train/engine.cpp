#include "train/engine.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <mutex>
#include <set>

#include "backend/cpu/cores.h"
#include "base/error.h"
#include "base/random.h"
#include "comm/texts.h"
#include "passes/kept_layers.h"
#include "train/stage_options.h"

namespace millrace::train {
namespace {

std::vector<int> device_counts(const StepSettings& job) {
  const int ranks = job.processes == nullptr ? 1 : job.processes->size();
  std::vector<int> counts;
  for (const auto& devices : parallel::devices_by_rank(job.plan, ranks)) {
    counts.push_back(static_cast<int>(devices.size()));
  }
  return counts;
}

// Those of one number, which each step tells of.
std::vector<std::string> names_of_results(const graph::Graph& network) {
  std::vector<std::string> names;
  for (const graph::TensorId id : network.results()) {
    const graph::Tensor& tensor = network.tensor(id);
    if (tensor.type.elements() == 1) names.push_back(tensor.name);
  }
  return names;
}

}  // namespace

Engine::Engine(const StepSettings& job, const graph::Graph& network, TrainingObserver& observer)
    : plan_(job.plan),
      graphs_(network, job.plan),
      groups_(device_counts(job), job.processes),
      choices_(kernels::ConvolutionChoices::default_path()),
      samples_(job.options.batch),
      classes_(job.options.classes),
      skipped_updates_(static_cast<size_t>(job.plan.stage_count()), 0),
      checks_overflow_(job.loss_scale.in_use()),
      agrees_(agrees_on_updates(job)),
      result_names_(names_of_results(network)),
      layout_(graphs_, schedule_of(plan_, steps_to_fill(plan_)), plan_.device_numbers(),
              job.precision.wire()) {
  passes::KeptLayers(job.precision.keep).require_in(network);
  for (const graph::TensorId id : network.results()) {
    if (network.tensor(id).name == kEmbedding) features_ = network.tensor(id).type.shape.back();
  }
  if (ranks() > 1) {
    heartbeat_ = std::make_unique<comm::Heartbeat>(*job.processes, groups_);
    std::vector<comm::Member> first;
    for (int rank = 0; rank < ranks(); ++rank) first.push_back({rank, 0});
    rank_group_ = groups_.make(first, 0).front();
  }
  const backend::DeviceCores cores = backend::cores_of_devices(
      comm::launch_place(), groups_.devices(rank()), job.threads, job.oversubscribe);
  if (!cores.note.empty()) observer.on_message(Severity::note, cores.note);
  const std::shared_ptr<backend::Backend> backend = backend::make_backend(job.backend);
  // A device that is alone on its host has no other to keep clear of, and may move where a core is
  // free.
  const bool alone = comm::launch_place().local_ranks == 1 && cores.teams.size() == 1;
  for (const std::vector<int>& team : cores.teams) {
    devices_.push_back(std::make_unique<backend::Device>(
        backend::DeviceOptions{.threads = static_cast<int>(team.size()),
                               .cores = alone ? std::vector<int>() : team,
                               .backend = backend}));
  }
  make_workers();
  std::vector<RowRange> wanted;
  for (const auto& worker : workers_) {
    const graph::Graph graph = local_graph(*worker).graph;
    const auto rows = input_rows(graph, graphs_.micro_batch(), plan_.micro_batches);
    wanted.insert(wanted.end(), rows.begin(), rows.end());
  }
  if (wanted.empty()) wanted.push_back({0, 1});
  rows_ = BatchRows(std::move(wanted));
}

Engine::~Engine() = default;

void Engine::start(std::optional<uint64_t> seed) {
  for (const auto& worker : workers_) {
    std::vector<const compile::Program*> programs;
    if (worker->training) programs.push_back(&*worker->training);
    if (worker->evaluation) programs.push_back(&*worker->evaluation);
    worker->session.emplace(*worker->device, programs);
    worker->session->set_collectives(worker->collectives.get());
    const auto number = static_cast<int>(&worker - workers_.data());
    worker->session->set_trace(trace_, number);
    if (worker->collectives) worker->collectives->set_trace(trace_, number);
    if (seed) worker->session->initialize(*seed);
  }
  start_pipeline();
}

void Engine::start_pipeline() {
  const std::vector<comm::Group> messages = groups_.make_for_messages(groups_.all());
  std::vector<comm::Group> everyone;
  if (agrees_ && plan_.devices().size() > 1 && !plan_.runs_whole()) {
    everyone = groups_.make(groups_.all(), 3 * plan_.stage_count() + 1);
  }
  Pipeline::Options options;
  options.graphs = &graphs_;
  options.layout = &layout_;
  for (size_t i = 0; i < workers_.size(); ++i) {
    Worker& worker = *workers_[i];
    options.workers.push_back(&worker);
    const auto place = std::find_if(devices_.begin(), devices_.end(), [&](const auto& device) {
      return device.get() == worker.device;
    });
    const auto number = static_cast<size_t>(place - devices_.begin());
    options.messages.push_back(messages[number]);
    if (!everyone.empty()) options.everyone.push_back(everyone[number]);
    const bool is_first =
        std::none_of(workers_.begin(), workers_.begin() + static_cast<int>(i),
                     [&](const auto& other) { return other->device == worker.device; });
    if (is_first) worker.messages = options.messages.back();
    options.trace_devices.push_back(static_cast<int>(i));
  }
  options.trace = trace_;
  options.results = result_names_;
  options.stop = [this](const std::string& sentence) { groups_.stop(sentence); };
  options.place_of_row = [this](int64_t row) { return rows_.place(row); };
  pipeline_.emplace(std::move(options));
}

std::vector<runtime::TraceDevice> Engine::trace_devices() const {
  std::vector<runtime::TraceDevice> devices;
  for (const auto& worker : workers_) {
    devices.push_back({worker->id.node, worker->id.device, worker->stage});
  }
  return devices;
}

bool Engine::overlaps_steps() const {
  return plan_.stage_count() > 1 && !parallel::is_synchronous(plan_.schedule);
}

// Where all devices agree before each update, on whether to make it, steps do not overlap.
void Engine::train(const Steps& steps) {
  if (!agrees_) return train_segment(steps);
  Steps one = steps;
  one.count = 1;
  for (int64_t i = 0; i < steps.count; ++i, ++one.first) train_segment(one);
}

StepOutcome Engine::outcome_of(const StepShares& shares) const {
  StepOutcome outcome;
  const auto parts = static_cast<double>(plan_.micro_batches);
  for (size_t i = 0; i < shares.results.size(); ++i) {
    const double value = shares.parts > 0 ? shares.results[i] * parts / shares.parts : 0;
    if (!std::isnan(value)) outcome.results[result_names_[i]] = value;
  }
  return outcome;
}

void Engine::train_segment(const Steps& steps) {
  std::vector<StepShares> shares;
  Pipeline::Work work;
  work.seed = steps.seed;
  work.first = steps.first;
  work.count = steps.count;
  if (steps.loss_scale) work.loss_scale = steps.loss_scale();
  work.skipped = skipped_updates_;
  work.learning_rate = steps.learning_rate;
  work.next = steps.next;
  // Results come from the last forward; the last step is over when the pipeline is empty. What
  // other processes and later updates have to say of a step is known then, too.
  const int64_t last = steps.first + steps.count - 1;
  const bool together = rank_group_ || checks_overflow_;
  work.finished = [&](int64_t step, const StepShares& sum) {
    shares.push_back(sum);
    if (!together && step != last) steps.finished(step, outcome_of(sum));
  };
  const auto start = std::chrono::steady_clock::now();
  pipeline_->train(work);
  if (!together) {
    steps.finished(last, outcome_of(shares.back()));
    return;
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  // Where every step is one program, all processes have its results already.
  if (rank_group_ && !plan_.runs_whole()) add_up(shares);
  std::vector<StepOutcome> outcomes;
  for (const StepShares& share : shares) {
    outcomes.push_back(outcome_of(share));
    outcomes.back().seconds = elapsed.count() / static_cast<double>(steps.count);
  }
  if (checks_overflow_) note_overflows(outcomes);
  for (size_t i = 0; i < outcomes.size(); ++i) {
    steps.finished(steps.first + static_cast<int64_t>(i), outcomes[i]);
  }
}

// Over the processes.
void Engine::add_up(std::vector<StepShares>& shares) {
  std::vector<double> sums;
  for (StepShares& share : shares) {
    share.results.resize(result_names_.size(), 0);
    sums.insert(sums.end(), share.results.begin(), share.results.end());
    sums.push_back(share.parts);
  }
  rank_group_->all_reduce(std::span(sums));
  auto next = sums.begin();
  for (StepShares& share : shares) {
    for (double& result : share.results) result = *next++;
    share.parts = *next++;
  }
}

bool Engine::any(bool wish) {
  if (!rank_group_) return wish;
  std::vector<int32_t> wishes = {wish ? 1 : 0};
  rank_group_->all_reduce(std::span(wishes));
  return wishes[0] > 0;
}

void Engine::fail(const std::string& sentence) noexcept {
  if (heartbeat_) heartbeat_->fail(sentence);
  groups_.stop(sentence);
}

void Engine::finish() {
  if (heartbeat_) heartbeat_->finish();
}

void Engine::set_activity(const std::string& what) {
  if (!heartbeat_) return;
  std::set<int> stages;
  for (const auto& worker : workers_) stages.insert(worker->stage);
  const bool tells = plan_.stage_count() > 1 && !stages.empty();
  heartbeat_->set_activity(tells ? fmt::format("{} (stage {})", what, fmt::join(stages, ", "))
                                 : what);
}

void Engine::watch(runtime::Watch what) {
  for (const auto& worker : workers_) runtime::watch(*worker->training, what);
}

std::string Engine::explain(const kernels::StepState& step, runtime::Watch what) {
  if (workers_.size() > 1 || ranks() > 1) return {};
  return runtime::explain_step(session(), *workers_.front()->training, step, what);
}

std::string Engine::fingerprint() {
  uint64_t hash = 0;
  for (const auto& worker : workers_) {
    hash = hash_combine(hash, static_cast<uint64_t>(worker->device->threads()));
    for (const compile::Instruction& instruction : worker->training->instructions) {
      if (instruction.kind == compile::InstructionKind::copy || instruction.is_of_message())
        continue;
      const std::string text = instruction.name + "=" + instruction.implementation;
      hash = hash_combine(hash, hash_bytes(text.data(), text.size()));
    }
  }
  std::string word = fmt::format("{:016x}", hash);
  if (!rank_group_) return word;
  std::string all;
  for (const std::string& text : comm::gather_texts(*rank_group_, word)) all += text;
  return fmt::format("{:016x}", hash_bytes(all.data(), all.size()));
}

const compile::Program* Engine::training() const {
  const Worker& worker = *workers_.front();
  return worker.training ? &*worker.training : nullptr;
}

const compile::Program* Engine::evaluation() const {
  const Worker& worker = *workers_.front();
  return worker.evaluation ? &*worker.evaluation : nullptr;
}

}  // namespace millrace::train
