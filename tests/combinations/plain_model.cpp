#include "plain_model.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/parts.h"
#include "data/safetensors.h"
#include "graph/margin_head.h"
#include "grouped_batch_norm.h"
#include "models/models.h"
#include "train/network.h"
#include "train/stage_options.h"

namespace millrace::combinations {
namespace {

constexpr std::string_view kSum = ".grad_sum";
constexpr std::string_view kAverage = "average:";

// A batch norm whose part on a device has fewer rows than a micro-batch sees those alone.
RowGroups row_groups(const parallel::JobGraphs& graphs) {
  RowGroups groups;
  for (int stage = 0; stage < graphs.plan().stage_count(); ++stage) {
    const int members = graphs.members(stage);
    if (members == 1) continue;
    const graph::Graph graph = graphs.local(stage, 0).graph;
    for (const graph::OperatorId id : graph.order()) {
      const graph::Operator& op = graph.op(id);
      if (op.type != "batch_norm") continue;
      if (graph.tensor(op.inputs[0]).type.shape[0] == graphs.micro_batch()) continue;
      for (int member = 0; member < members; ++member) {
        groups[op.name].push_back(part_size(graphs.micro_batch(), member, members));
      }
    }
  }
  return groups;
}

std::vector<std::string> names_of(const graph::Graph& graph, graph::Role role) {
  std::vector<std::string> names;
  for (graph::TensorId id = 0; id < graph.tensor_count(); ++id) {
    if (graph.tensor(id).role == role) names.push_back(graph.tensor(id).name);
  }
  return names;
}

bool is_centres(const std::string& name) { return name.starts_with("head.centres"); }

}  // namespace

PlainModel::PlainModel(const train::TrainJob& job, const std::set<int>& newest)
    : job_(job),
      graphs_(train::network_of(job), job.plan),
      rule_(job.plan, newest),
      optimizer_(job.optimizer),
      device_({.threads = 1}) {
  const graph::Graph network = train::network_of(job);
  const graph::Graph micro =
      parallel::with_batch(network, graphs_.micro_batch(), job.options.batch);
  compile::CompileOptions options = train::compile_options(job, 1, nullptr);
  options.updates.accumulate = true;
  options.updates.check_overflow = false;
  options.updates.micro_batches = job.plan.micro_batches;
  options.shape.phasing = compile::Phasing::micro_batches;
  device_.run([&] {
    program_ = compile::compile_training(with_row_groups(micro, row_groups(graphs_)), options);
  });
  session_ =
      std::make_unique<runtime::Session>(device_, std::vector<const compile::Program*>{&program_});
  session_->initialize(job.seed);
  for (const compile::Slot& slot : session_->state()) slots_[slot.name] = &slot;

  for (int stage = 0; stage < job.plan.stage_count(); ++stage) {
    Stage one;
    const graph::Graph graph = graphs_.local(stage, 0).graph;
    for (const std::string& name : names_of(graph, graph::Role::parameter)) {
      if (is_centres(name)) continue;
      TrainedTensor& tensor = one.tensors[name];
      tensor.shape = slot(name).type.shape;
      tensor.rate = network.tensor(network.find_tensor(name)).rate;
      const std::vector<float> start = read(name);
      tensor.values.assign(start.begin(), start.end());
      optimizer_.prepare(tensor);
    }
    for (const auto& [name, place] : slots_) {
      const std::string plain = name.substr(0, name.find('#'));
      const std::vector<std::string> own = names_of(graph, graph::Role::buffer);
      if (place->role == graph::Role::buffer &&
          std::find(own.begin(), own.end(), plain) != own.end()) {
        one.buffers.push_back(name);
      }
    }
    Values statistics;
    for (const std::string& name : one.buffers) statistics[name] = read(name);
    const int replicas =
        job.plan.round_robin ? job.plan.stages[static_cast<size_t>(stage)].size() : 1;
    one.statistics.assign(static_cast<size_t>(replicas), statistics);
    stages_.push_back(std::move(one));
  }
}

bool PlainModel::stale() const {
  return job_.plan.stage_count() > 1 && !parallel::is_synchronous(job_.plan.schedule);
}

double PlainModel::learning_rate(int64_t step) const {
  train::LearningRateSettings settings = job_.learning_rate;
  settings.total_steps = job_.steps;
  return static_cast<float>(train::learning_rate_at(settings, step));
}

const compile::Slot& PlainModel::slot(const std::string& name) const { return *slots_.at(name); }

std::vector<float> PlainModel::read(const std::string& name) const {
  std::vector<float> values(static_cast<size_t>(slot(name).type.elements()));
  session_->read_state(slot(name), values);
  return values;
}

void PlainModel::load(const std::filesystem::path& path) {
  const data::SafetensorsFile file(path);
  for (const data::SafetensorsEntry& entry : file.entries()) {
    if (entry.dtype != "F32" && entry.dtype != "I32") continue;  // counts go in as they are
    std::vector<float> values(entry.data.size() / sizeof(float));
    std::memcpy(values.data(), entry.data.data(), entry.data.size());
    if (entry.name.starts_with(kAverage)) {
      average_[entry.name.substr(kAverage.size())].assign(values.begin(), values.end());
      continue;
    }
    if (slots_.contains(entry.name)) session_->write_state(slot(entry.name), values);
    for (Stage& stage : stages_) {
      for (auto& [name, tensor] : stage.tensors) {
        if (name == entry.name) tensor.values.assign(values.begin(), values.end());
        for (auto& [ending, state] : tensor.state) {
          if (name + ending == entry.name) state.assign(values.begin(), values.end());
        }
      }
      for (const std::string& name : stage.buffers) {
        if (name.substr(0, name.find('#')) != entry.name) continue;
        session_->write_state(slot(name), values);
        for (Values& statistics : stage.statistics) statistics[name] = values;
      }
    }
  }
}

void PlainModel::set_weights(int64_t micro_batch) {
  for (int s = 0; s < job_.plan.stage_count(); ++s) {
    const Stage& stage = stages_[static_cast<size_t>(s)];
    const auto version = static_cast<size_t>(rule_.version(s, micro_batch));
    for (const auto& [name, values] : stage.versions.at(version)) {
      session_->write_state(slot(name), values);
    }
  }
}

void PlainModel::set_statistics(int64_t micro_batch) {
  for (int s = 0; s < job_.plan.stage_count(); ++s) {
    const Stage& stage = stages_[static_cast<size_t>(s)];
    for (const auto& [name, values] :
         stage.statistics[static_cast<size_t>(rule_.replica(s, micro_batch))]) {
      session_->write_state(slot(name), values);
    }
  }
}

void PlainModel::keep_statistics(int64_t micro_batch) {
  for (int s = 0; s < job_.plan.stage_count(); ++s) {
    Stage& stage = stages_[static_cast<size_t>(s)];
    for (auto& [name, values] :
         stage.statistics[static_cast<size_t>(rule_.replica(s, micro_batch))]) {
      values = read(name);
    }
  }
}

void PlainModel::read_batch(const train::FeedBatch& batch, int64_t micro_batch) {
  const auto rows = static_cast<size_t>(graphs_.micro_batch());
  const size_t first = static_cast<size_t>(micro_batch) * rows;
  const size_t row = batch.images.size() / batch.labels.size();
  session_->write_input(program_, "images", batch.images.subspan(first * row, rows * row));
  session_->write_input(program_, "labels", batch.labels.subspan(first, rows));
  for (const compile::Slot& input : program_.inputs) {
    if (input.name == graph::kStepLabels) session_->write_input(program_, input.name, batch.labels);
  }
  if (!batch.mixing.empty()) {
    session_->write_input(program_, "mixing", batch.mixing.subspan(first * 2, rows * 2));
  }
}

double PlainModel::run_micro_batch(int64_t step, int64_t micro_batch_of_step) {
  kernels::StepState state = {job_.seed, step, static_cast<float>(learning_rate(step)),
                              micro_batch_of_step, micro_batch_of_step * graphs_.micro_batch()};
  double loss = 0;
  device_.run([&] {
    session_->run_task(program_, program_.task(parallel::Work::forward), {}, state);
    loss = session_->scalar(program_, "loss");
    session_->run_task(program_, program_.task(parallel::Work::backward), {}, state);
  });
  return loss;
}

void PlainModel::run_update(int64_t step) {
  kernels::StepState state = {job_.seed, step, static_cast<float>(learning_rate(step))};
  // Those of steps before the first one here count too: the job may go on from a checkpoint.
  for (const train::InjectedOverflow& fault : job_.inject_overflow) {
    if (fault.step == step + 1) return;
    if (fault.step <= step) ++state.skipped;
  }
  device_.run(
      [&] { session_->run_task(program_, program_.task(parallel::Work::update), {}, state); });
}

void PlainModel::update(Stage& stage, int64_t step) {
  const double mean =
      static_cast<double>(job_.plan.micro_batches) / static_cast<double>(stage.included);
  ++stage.updates;
  Values next;
  for (auto& [name, tensor] : stage.tensors) {
    std::vector<double>& gradient = stage.sums[name];
    for (double& value : gradient) value *= mean;
    optimizer_.update(tensor, gradient, learning_rate(step) * tensor.rate, stage.updates);
    next[name].assign(tensor.values.begin(), tensor.values.end());
  }
  stage.versions.push_back(std::move(next));
  stage.sums.clear();
  stage.included = 0;
}

void PlainModel::add_gradients(int64_t step, int64_t micro_batch, bool last_of_all) {
  for (int s = 0; s < job_.plan.stage_count(); ++s) {
    Stage& stage = stages_[static_cast<size_t>(s)];
    for (const auto& [name, tensor] : stage.tensors) {
      // The program adds up the micro-batches of a step.
      std::vector<float> total = read(name + std::string(kSum));
      std::vector<float>& before = stage.before[name];
      if (micro_batch % job_.plan.micro_batches == 0) before.assign(total.size(), 0);
      std::vector<double>& sum = stage.sums[name];
      sum.resize(total.size(), 0);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += double{total[i]} - double{before[i]};
      before = std::move(total);
    }
    ++stage.included;
    if (last_of_all || rule_.update(s, micro_batch + 1) != rule_.update(s, micro_batch)) {
      update(stage, step);
    }
  }
}

// Of a running statistic that the first replica has; null for another tensor.
const std::vector<float>* PlainModel::statistic(const std::string& name) const {
  for (const Stage& stage : stages_) {
    const auto found = stage.statistics[0].find(name);
    if (found != stage.statistics[0].end()) return &found->second;
  }
  return nullptr;
}

void PlainModel::update_average() {
  for (const auto& [name, place] : slots_) {
    const bool is_weight =
        place->role == graph::Role::parameter || place->role == graph::Role::buffer;
    if (!is_weight || is_centres(name) || name.find('#') != std::string::npos) continue;
    const std::vector<float>* kept = statistic(name);
    const std::vector<float> values = kept != nullptr ? *kept : read(name);
    auto [entry, is_first] = average_.try_emplace(name, values.begin(), values.end());
    if (is_first) continue;
    for (size_t i = 0; i < values.size(); ++i) {
      entry->second[i] = average_decay_ * entry->second[i] + (1 - average_decay_) * values[i];
    }
  }
}

void PlainModel::run(int64_t first, int64_t last, train::Feed& feed,
                     const std::function<void(const Step&)>& told) {
  const int64_t per_step = job_.plan.micro_batches;
  const int64_t count = (last - first) * per_step;
  for (Stage& stage : stages_) {
    stage.versions.assign(1, {});
    for (const auto& [name, tensor] : stage.tensors) {
      stage.versions[0][name].assign(tensor.values.begin(), tensor.values.end());
    }
  }
  for (int64_t step = first; step < last; ++step) {
    const train::FeedBatch batch = feed.next().value();
    double loss = 0;
    for (int64_t i = 0; i < per_step; ++i) {
      // Where every step drains the pipeline, replicas take turns anew in each.
      const int64_t m = stale() ? (step - first) * per_step + i : i;
      read_batch(batch, i);
      if (stale()) set_weights(m);
      set_statistics(m);
      loss += run_micro_batch(step, i);
      keep_statistics(m);
      if (stale()) add_gradients(step, m, m + 1 == count);
    }
    // Of what it updates where weights are old, only the centres of a head are used again.
    if (!stale() || job_.options.head) run_update(step);
    if (average_decay_ > 0) update_average();
    told({step + 1, loss, learning_rate(step)});
  }
}

void PlainModel::save(const std::filesystem::path& directory) const {
  std::filesystem::create_directories(directory);
  std::map<std::string, std::pair<graph::Shape, std::vector<float>>> weights, states;
  for (const auto& [name, place] : slots_) {
    if (name.find('#') != std::string::npos || place->role == graph::Role::accumulator) continue;
    const bool is_state = place->role == graph::Role::optimizer_state;
    (is_state ? states : weights)[name] = {place->type.shape, read(name)};
  }
  for (const Stage& stage : stages_) {
    for (const auto& [name, tensor] : stage.tensors) {
      if (!stale()) break;
      weights[name].second.assign(tensor.values.begin(), tensor.values.end());
      for (const auto& [ending, values] : tensor.state) {
        states[name + ending] = {tensor.shape, {values.begin(), values.end()}};
      }
      // AdamW counts the updates of each tensor beside its moments.
      if (states.contains(name + ".updates")) {
        states[name + ".updates"].second = {static_cast<float>(stage.updates)};
      }
    }
    for (const std::string& name : stage.buffers) {
      if (name.find('#') == std::string::npos) weights[name].second = stage.statistics[0].at(name);
    }
  }
  const auto write = [&](std::string_view name, const auto& tensors) {
    std::vector<data::SafetensorsTensor> list;
    for (const auto& [tensor, values] : tensors) {
      const bool counts =
          slots_.contains(tensor) && slot(tensor).type.dtype == graph::DataType::s32;
      list.push_back({tensor, counts ? "I32" : "F32", values.first, values.second.data(),
                      values.second.size() * sizeof(float)});
    }
    data::write_safetensors(directory / name, list, {});
  };
  write("weights.safetensors", weights);
  write("optimizer.safetensors", states);
  std::map<std::string, std::pair<graph::Shape, std::vector<float>>> average;
  for (const auto& [name, values] : average_) {
    average[name] = {slot(name).type.shape, {values.begin(), values.end()}};
  }
  if (!average.empty()) write("average.safetensors", average);
}

}  // namespace millrace::combinations
