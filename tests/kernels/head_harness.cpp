#include "head_harness.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/parallel.h"
#include "base/random.h"
#include "graph/operator_definition.h"
#include "kernels/head/sampling.h"
#include "kernels/head/storage.h"

namespace millrace::testing {
namespace {

constexpr double kMomentum = 0.9;
constexpr double kDecay = 0.01;
constexpr double kBeta1 = 0.9;
constexpr double kBeta2 = 0.99;
constexpr double kEpsilon = 1e-6;

graph::Attributes attributes_of(const HeadCase& entry, int shard) {
  return {{"classes", entry.classes},
          {"class_begin", entry.begin(shard)},
          {"local_classes", entry.begin(shard + 1) - entry.begin(shard)},
          {"sample_rate", entry.sample_rate},
          {"margin_multiplier", entry.multiplier},
          {"margin_addend", entry.addend},
          {"margin_subtrahend", entry.subtrahend},
          {"margin", static_cast<int64_t>(graph::HeadMargin::fixed)},
          {"margin_strength", graph::MarginHeadOptions{}.strength},
          {"filter", graph::MarginHeadOptions{}.filter},
          {"scale", entry.scale},
          {"exact_gradient", entry.exact_gradient},
          {"cache_bytes", entry.cache_bytes},
          {"embedding_share", 1.0},
          {"momentum", kMomentum},
          {"weight_decay", kDecay},
          {"nesterov", false},
          {"beta1", kBeta1},
          {"beta2", kBeta2},
          {"epsilon", kEpsilon}};
}

// A tensor with memory of its own.
struct Held {
  graph::TensorType type;
  Storage memory;

  explicit Held(const graph::TensorType& held)
      : type(held), memory(static_cast<uint64_t>(held.elements() * graph::size_of(held.dtype))) {}
  Held(const graph::TensorType& held, const Values& values) : Held(held) {
    if (type.dtype == graph::DataType::f32 || type.dtype == graph::DataType::s32) {
      memory = pack(values, {type, {}});
      return;
    }
    const std::vector<float> floats(values.begin(), values.end());
    kernels::store_row(type.dtype, floats.data(), type.elements(), {}, memory.data());
  }

  Values values() const {
    if (type.dtype == graph::DataType::f32 || type.dtype == graph::DataType::s32) {
      return unpack(memory, {type, {}});
    }
    std::vector<float> floats(static_cast<size_t>(type.elements()));
    kernels::load_row(type.dtype, memory.data(), type.elements(), floats.data());
    return {floats.begin(), floats.end()};
  }
};

std::vector<Held> run_operator(const std::string& type, const graph::Attributes& attributes,
                               const std::vector<Held*>& inputs, const HeadCase& entry) {
  std::vector<graph::TensorType> types;
  std::vector<std::byte*> input_pointers;
  for (Held* input : inputs) {
    types.push_back(input->type);
    input_pointers.push_back(input->memory.data());
  }
  const SingleOperator single(type, attributes, types);
  kernels::KernelOptions options;
  options.threads = entry.threads;
  options.reference_only = entry.reference;
  const kernels::KernelRequest request = single.request(options);
  const auto kernel = kernels::make_kernel(request);
  std::vector<Held> outputs;
  for (const graph::TensorType& output : single.outputs) outputs.emplace_back(output);
  std::vector<std::byte*> output_pointers;
  for (Held& output : outputs) output_pointers.push_back(output.memory.data());
  Storage workspace(kernel->workspace_bytes());
  std::fill(workspace.lines.begin(), workspace.lines.end(), Storage::Line{});
  const int team = team_size();
  set_team_size(entry.threads);
  try {
    kernel->run({input_pointers, output_pointers, workspace.data(), &entry.step});
  } catch (...) {
    set_team_size(team);
    throw;
  }
  set_team_size(team);
  return outputs;
}

std::vector<int32_t> classes_in(const Held& held, const HeadCase& entry, int shard) {
  const kernels::ClassSample sample(reinterpret_cast<const int32_t*>(held.memory.data()),
                                    graph::class_range_of(attributes_of(entry, shard)), entry.batch,
                                    entry.sample_rate);
  std::vector<int32_t> classes(static_cast<size_t>(sample.count()));
  sample.list(0, classes);
  for (int32_t& number : classes) number += static_cast<int32_t>(entry.begin(shard));
  return classes;
}

Values slice_of(const Values& values, int64_t begin, int64_t end) {
  return {values.begin() + begin, values.begin() + end};
}

void put_slice(Values& whole, int64_t begin, const Values& part) {
  std::copy(part.begin(), part.end(), whole.begin() + begin);
}

double dot(const double* a, const double* b, int64_t count) {
  return std::inner_product(a, a + count, b, 0.0);
}

double margin_logit(const HeadCase& entry, double cosine) {
  const double angle = std::acos(std::clamp(cosine, -1.0, 1.0));
  return entry.scale * (std::cos(entry.multiplier * angle + entry.addend) - entry.subtrahend);
}

double margin_slope(const HeadCase& entry, double cosine) {
  if (!entry.exact_gradient || (entry.multiplier == 1 && entry.addend == 0)) return entry.scale;
  const double angle = std::acos(std::clamp(cosine, -1.0, 1.0));
  return entry.scale * entry.multiplier * std::sin(entry.multiplier * angle + entry.addend) /
         std::sin(angle);
}

void dense_update(const HeadCase& entry, const Values& gradient, int64_t row, HeadStep& step) {
  const double rate = entry.step.learning_rate;
  const auto t = static_cast<double>(entry.step.step + 1);
  for (int64_t d = 0; d < entry.dimension; ++d) {
    const auto at = static_cast<size_t>(row * entry.dimension + d);
    double& w = step.centres[at];
    const double g = gradient[static_cast<size_t>(d)];
    if (entry.optimizer == "adamw") {
      double& first = step.states[0][at];
      double& second = step.states[1][at];
      first = kBeta1 * first + (1 - kBeta1) * g;
      second = kBeta2 * second + (1 - kBeta2) * g * g;
      const double mean = first / (1 - std::pow(kBeta1, t));
      const double deviation = std::sqrt(second / (1 - std::pow(kBeta2, t)));
      w -= rate * kDecay * w;
      w -= rate * mean / (deviation + kEpsilon);
    } else if (entry.optimizer == "momentum") {
      double& m = step.states[0][at];
      m = kMomentum * m + g + kDecay * w;
      w -= rate * m;
    } else {
      w -= rate * (g + kDecay * w);
    }
  }
}

}  // namespace

HeadValues random_head(const HeadCase& entry, uint64_t seed) {
  HeadValues values;
  const Random random(seed, 11);
  uint64_t next = 0;
  for (int64_t i = 0; i < entry.batch; ++i) {
    std::vector<double> row;
    for (int64_t d = 0; d < entry.dimension; ++d) row.push_back(random.normal(next++));
    const double norm = std::sqrt(dot(row.data(), row.data(), entry.dimension));
    for (const double x : row) values.embeddings.push_back(static_cast<float>(x / norm));
    values.labels.push_back(
        static_cast<double>(random.below(next++, static_cast<uint64_t>(entry.classes))));
  }
  for (int64_t i = 0; i < entry.classes * entry.dimension; ++i) {
    values.centres.push_back(static_cast<float>(0.1 * random.normal(next++)));
  }
  const size_t states = entry.optimizer.empty() ? 0 : entry.optimizer == "adamw" ? 2 : 1;
  for (size_t s = 0; s < states; ++s) {
    Values state;
    for (size_t i = 0; i < values.centres.size(); ++i) {
      const double x = 0.01 * random.normal(next++);
      state.push_back(static_cast<float>(s == 1 ? x * x : x));
    }
    values.states.push_back(std::move(state));
  }
  return values;
}

std::vector<int32_t> sample_of(const HeadCase& entry, const Values& labels, int shard) {
  Held held({{entry.batch}, graph::DataType::s32}, labels);
  const auto outputs =
      run_operator("margin_head_sample", attributes_of(entry, shard), {&held}, entry);
  return classes_in(outputs[0], entry, shard);
}

Values across(const Values& rows, const Values& gradients, int64_t dimension) {
  Values result = gradients;
  for (size_t at = 0; at < rows.size(); at += static_cast<size_t>(dimension)) {
    const double along = dot(rows.data() + at, gradients.data() + at, dimension) /
                         dot(rows.data() + at, rows.data() + at, dimension);
    for (size_t i = at; i < at + static_cast<size_t>(dimension); ++i) result[i] -= along * rows[i];
  }
  return result;
}

HeadStep run_head(const HeadCase& entry, const HeadValues& values) {
  HeadStep step = {0, {}, values.centres, values.states, {}};
  Held embeddings({{entry.batch, entry.dimension}, graph::DataType::f32}, values.embeddings);
  Held labels({{entry.batch}, graph::DataType::s32}, values.labels);
  std::vector<Held> samples, statistics, products, centres;
  Values gathered;
  for (int shard = 0; shard < entry.shards; ++shard) {
    const graph::Attributes attributes = attributes_of(entry, shard);
    samples.push_back(run_operator("margin_head_sample", attributes, {&labels}, entry)[0]);
    step.samples.push_back(classes_in(samples.back(), entry, shard));
    const int64_t first = entry.begin(shard) * entry.dimension;
    const int64_t last = entry.begin(shard + 1) * entry.dimension;
    centres.emplace_back(
        graph::TensorType{{(last - first) / entry.dimension, entry.dimension}, entry.storage},
        slice_of(values.centres, first, last));
    auto made = run_operator("margin_head_statistics", attributes,
                             {&embeddings, &samples.back(), &centres.back()}, entry);
    const Values rows = made[0].values();
    gathered.insert(gathered.end(), rows.begin(), rows.end());
    statistics.push_back(std::move(made[0]));
    products.push_back(std::move(made[1]));
  }

  // Its gradient goes to each shard's own statistics.
  Held all({{entry.batch * entry.shards, graph::kHeadStatistics}, graph::DataType::f32}, gathered);
  auto loss =
      run_operator("margin_head_loss", {{"members", int64_t{1}}}, {&statistics[0], &all}, entry);
  step.loss = loss[0].values()[0];
  step.of_embeddings.assign(static_cast<size_t>(entry.batch * entry.dimension), 0.0);
  Held one({{1}, graph::DataType::f32}, {1});
  const std::string type =
      "margin_head_update" + (entry.optimizer.empty() ? "" : "_" + entry.optimizer);
  for (int shard = 0; shard < entry.shards; ++shard) {
    const auto s = static_cast<size_t>(shard);
    auto gradient =
        run_operator("margin_head_loss_backward", {}, {&one, &statistics[s], &loss[1]}, entry);
    const int64_t first = entry.begin(shard) * entry.dimension;
    const int64_t last = entry.begin(shard + 1) * entry.dimension;
    std::vector<Held*> inputs = {&gradient[0], &statistics[s], &embeddings,
                                 &samples[s],  &products[s],   &centres[s]};
    std::vector<Held> states;
    for (const Values& state : values.states) {
      states.emplace_back(centres[s].type, slice_of(state, first, last));
    }
    for (Held& state : states) inputs.push_back(&state);
    const auto made = run_operator(type, attributes_of(entry, shard), inputs, entry);
    const Values share = made[0].values();
    for (size_t i = 0; i < share.size(); ++i) step.of_embeddings[i] += share[i];
    put_slice(step.centres, first, centres[s].values());
    for (size_t i = 0; i < states.size(); ++i) {
      put_slice(step.states[i], first, states[i].values());
    }
  }
  step.of_embeddings = across(values.embeddings, step.of_embeddings, entry.dimension);
  return step;
}

HeadStep dense_head(const HeadCase& entry, const HeadValues& values,
                    const std::vector<std::vector<int32_t>>& samples) {
  HeadStep step = {0, {}, values.centres, values.states, samples};
  std::vector<int32_t> used;
  for (const auto& part : samples) used.insert(used.end(), part.begin(), part.end());
  const auto width = static_cast<size_t>(entry.dimension);
  Values units;  // the used centres at length one
  Values norms;
  for (const int32_t j : used) {
    const double* w = values.centres.data() + j * entry.dimension;
    norms.push_back(std::sqrt(dot(w, w, entry.dimension)));
    for (size_t d = 0; d < width; ++d) units.push_back(w[d] / norms.back());
  }
  step.of_embeddings.assign(values.embeddings.size(), 0.0);
  Values of_units(units.size(), 0.0);
  for (int64_t i = 0; i < entry.batch; ++i) {
    const double* e = values.embeddings.data() + i * entry.dimension;
    Values logits, slopes;
    size_t target = used.size();
    for (size_t j = 0; j < used.size(); ++j) {
      const double cosine = dot(e, units.data() + j * width, entry.dimension);
      const bool is_target = used[j] == static_cast<int32_t>(values.labels[static_cast<size_t>(i)]);
      if (is_target) target = j;
      logits.push_back(is_target ? margin_logit(entry, cosine) : entry.scale * cosine);
      slopes.push_back(is_target ? margin_slope(entry, cosine) : entry.scale);
    }
    const double maximum = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (const double logit : logits) sum += std::exp(logit - maximum);
    const double share = 1.0 / static_cast<double>(entry.batch);
    step.loss += share * (maximum + std::log(sum) - logits.at(target));
    for (size_t j = 0; j < used.size(); ++j) {
      const double probability = std::exp(logits[j] - maximum) / sum;
      const double g = share * (probability - (j == target ? 1 : 0)) * slopes[j];
      for (size_t d = 0; d < width; ++d) {
        step.of_embeddings[static_cast<size_t>(i) * width + d] += g * units[j * width + d];
        of_units[j * width + d] += g * e[d];
      }
    }
  }
  for (size_t j = 0; j < used.size(); ++j) {
    const double* unit = units.data() + j * width;
    const double along = dot(of_units.data() + j * width, unit, entry.dimension);
    Values gradient;
    for (size_t d = 0; d < width; ++d) {
      gradient.push_back((of_units[j * width + d] - along * unit[d]) / norms[j]);
    }
    dense_update(entry, gradient, used[j], step);
  }
  step.of_embeddings = across(values.embeddings, step.of_embeddings, entry.dimension);
  return step;
}

std::string difference(const HeadStep& actual, const HeadStep& expected, double tolerance) {
  const auto part = [&](const char* name, const Values& a, const Values& b) {
    const std::string found = difference(a, b, tolerance);
    return found.empty() ? "" : fmt::format("{}: {}", name, found);
  };
  std::string found = part("loss", {actual.loss}, {expected.loss});
  if (found.empty()) found = part("embeddings", actual.of_embeddings, expected.of_embeddings);
  if (found.empty()) found = part("centres", actual.centres, expected.centres);
  for (size_t i = 0; i < expected.states.size() && found.empty(); ++i) {
    found = part("state", actual.states.at(i), expected.states[i]);
  }
  return found;
}

}  // namespace millrace::testing
