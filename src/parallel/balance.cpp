#include <algorithm>
#include <limits>

#include "base/error.h"
#include "graph/operator_definition.h"
#include "parallel/partition.h"
#include "parallel/partition_facts.h"
#include "passes/autodiff.h"
#include "passes/rewrite.h"

namespace millrace::parallel {
namespace {

constexpr double kOperationsPerSecond = 5e10;
constexpr double kBytesPerSecond = 1e10;

// What a division is judged by, the first that differs deciding.
struct Merit {
  double excess = 1;   // the most that a stage needs of its limit, where that is more than 1
  double seconds = 0;  // of the slowest stage or transfer
  double cut_bytes = 0;

  auto operator<=>(const Merit&) const = default;
};

constexpr double kInfinite = std::numeric_limits<double>::infinity();

// Sums over runs of the order, and the best division of its beginning for each number of stages.
class Balancing {
 public:
  Balancing(const graph::Graph& graph, const BalanceOptions& options)
      : graph_(graph), options_(options), count_(graph.order().size()) {
    seconds_.push_back(0);
    weights_.push_back(0);
    activations_.push_back(0);
    std::vector<bool> counted(at(graph.tensor_count()), false);
    for (graph::OperatorId id : graph.order()) {
      seconds_.push_back(seconds_.back() +
                         (options.seconds ? options.seconds(id) : modelled_seconds(graph, id)));
      weights_.push_back(weights_.back());
      activations_.push_back(activations_.back());
      for (graph::TensorId input : graph.op(id).inputs) {
        const graph::Tensor& tensor = graph.tensor(input);
        if (tensor.role != graph::Role::parameter || counted[at(input)]) continue;
        counted[at(input)] = true;
        weights_.back() += static_cast<double>(passes::bytes_of(tensor));
      }
      if (graph::definition_of(graph.op(id).type).is_view) continue;
      for (graph::TensorId output : graph.op(id).outputs) {
        activations_.back() += static_cast<double>(passes::bytes_of(graph.tensor(output)));
      }
    }
    find_crossings();
  }

  // Where each stage begins in the order; empty if there is no division.
  std::vector<size_t> run() {
    const auto stages = static_cast<size_t>(options_.stages);
    // best[s][j]: stages 0 … s do the operators before j.
    std::vector<std::vector<Merit>> best(stages, std::vector<Merit>(count_ + 1, {kInfinite}));
    std::vector<std::vector<size_t>> begin(stages, std::vector<size_t>(count_ + 1, 0));
    for (size_t j = 1; j <= count_; ++j) best[0][j] = merit_of(0, 0, j);
    for (size_t stage = 1; stage < stages; ++stage) {
      for (size_t j = stage + 1; j <= count_; ++j) {
        for (size_t i = stage; i < j && i <= latest_cut_; ++i) {
          const Merit merit = join(best[stage - 1][i], merit_of(stage, i, j));
          if (!(merit < best[stage][j])) continue;
          best[stage][j] = merit;
          begin[stage][j] = i;
        }
      }
    }
    if (best[stages - 1][count_].excess == kInfinite) return {};
    std::vector<size_t> cuts(stages, 0);
    size_t end = count_;
    for (size_t stage = stages; stage-- > 0;) end = cuts[stage] = begin[stage][end];
    return cuts;
  }

 private:
  // Bytes that cross each position of the order, and the last position before the labels.
  void find_crossings() {
    crossing_.assign(count_ + 1, 0);
    std::vector<size_t> position(at(graph_.operator_count()), 0);
    for (size_t i = 0; i < count_; ++i) position[at(graph_.order()[i])] = i;
    const auto consumers = graph_.consumers();
    for (size_t i = 0; i < count_; ++i) {
      for (graph::TensorId output : graph_.op(graph_.order()[i]).outputs) {
        const auto& readers = consumers[at(output)];
        if (readers.empty()) continue;
        const double bytes = static_cast<double>(passes::bytes_of(graph_.tensor(output)));
        for (size_t k = i + 1; k <= position[at(readers.back())]; ++k) crossing_[k] += bytes;
      }
    }
    const std::vector<bool> labels = operators_of_labels(graph_);
    latest_cut_ = count_;
    for (size_t i = count_; i-- > 0;) {
      if (labels[at(graph_.order()[i])]) latest_cut_ = i;
    }
  }

  template <typename T>
  static T value(const std::vector<T>& list, size_t stage, T otherwise) {
    return list.empty() ? otherwise : list.at(stage);
  }

  Merit merit_of(size_t stage, size_t i, size_t j) const {
    const double replicas = value(options_.replicas, stage, 1);
    const double weights = weights_[j] - weights_[i];
    const double activations = (activations_[j] - activations_[i]) / replicas;
    Merit merit;
    merit.seconds = (seconds_[j] - seconds_[i]) / replicas;
    merit.cut_bytes = crossing_[i];
    if (options_.bytes_per_second > 0) {
      merit.seconds += 2 * (replicas - 1) / replicas * weights / options_.bytes_per_second;
      merit.seconds = std::max(merit.seconds, 2 * crossing_[i] / options_.bytes_per_second);
    }
    if (!options_.memory_limits.empty()) {
      const auto copies = static_cast<double>(value(options_.versions, stage, int64_t{1}) + 1 +
                                              options_.optimizer_copies);
      const auto in_flight = static_cast<double>(value(options_.in_flight, stage, int64_t{1}));
      const double needed = copies * weights + in_flight * activations;
      merit.excess = std::max(1.0, needed / static_cast<double>(options_.memory_limits.at(stage)));
    }
    return merit;
  }

  static Merit join(const Merit& a, const Merit& b) {
    return {std::max(a.excess, b.excess), std::max(a.seconds, b.seconds),
            a.cut_bytes + b.cut_bytes};
  }

  const graph::Graph& graph_;
  const BalanceOptions& options_;
  const size_t count_;
  size_t latest_cut_ = 0;
  std::vector<double> seconds_;  // of the operators before each position, and so on
  std::vector<double> weights_;
  std::vector<double> activations_;
  std::vector<double> crossing_;
};

template <typename T>
void require_one_per_stage(const std::vector<T>& list, int stages, std::string_view what) {
  if (list.empty() || std::ssize(list) == stages) return;
  fail_input("There are {} {} for {} stages; give one per stage.", list.size(), what, stages);
}

}  // namespace

double modelled_seconds(const graph::Graph& forward, graph::OperatorId id) {
  const graph::Operator& op = forward.op(id);
  const graph::OperatorDefinition& definition = graph::definition_of(op.type);
  if (definition.is_view) return 0;
  graph::Inference inference = {op, {}};
  double bytes = 0;
  double outputs = 0;
  bool parameter = false;
  bool before = false;
  for (graph::TensorId input : op.inputs) {
    const graph::Tensor& tensor = forward.tensor(input);
    inference.inputs.push_back(tensor.type);
    bytes += static_cast<double>(passes::bytes_of(tensor));
    parameter = parameter || tensor.role == graph::Role::parameter;
    before = before || tensor.producer != graph::kNone;
  }
  for (graph::TensorId output : op.outputs) {
    bytes += static_cast<double>(passes::bytes_of(forward.tensor(output)));
    outputs += static_cast<double>(forward.tensor(output).type.elements());
  }
  const double passes = 1 + (parameter ? 1 : 0) + (before ? 1 : 0);
  const double arithmetic = definition.arithmetic ? definition.arithmetic(inference) : outputs;
  return passes * (arithmetic / kOperationsPerSecond + bytes / kBytesPerSecond);
}

std::vector<int> assign_balanced(const graph::Graph& forward, const BalanceOptions& options) {
  if (options.stages < 1) fail_input("There are {} stages; there must be 1.", options.stages);
  require_one_per_stage(options.replicas, options.stages, "numbers of replicas");
  require_one_per_stage(options.memory_limits, options.stages, "memory limits");
  require_one_per_stage(options.versions, options.stages, "numbers of versions");
  require_one_per_stage(options.in_flight, options.stages, "numbers of micro-batches in flight");
  const std::vector<size_t> cuts = options.stages > std::ssize(forward.order())
                                       ? std::vector<size_t>()
                                       : Balancing(forward, options).run();
  if (cuts.empty()) {
    fail_input("The network's {} operators cannot be divided into {} stages; use fewer.",
               forward.order().size(), options.stages);
  }
  std::vector<int> stages(at(forward.operator_count()), 0);
  int stage = 0;
  for (size_t i = 0; i < forward.order().size(); ++i) {
    while (stage + 1 < options.stages && cuts[static_cast<size_t>(stage) + 1] == i) ++stage;
    stages[at(forward.order()[i])] = stage;
  }
  check_stages(forward, stages, options.stages);
  return stages;
}

}  // namespace millrace::parallel
