#include "passes/recompute.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "passes/recompute_plan.h"
#include "passes/recompute_search.h"

namespace millrace::passes {
namespace {

class Cloner {
 public:
  explicit Cloner(graph::Graph& graph)
      : graph_(graph), newest_(static_cast<size_t>(graph.tensor_count()), graph::kNone) {}

  void run(const RecomputePlanner& planner, const RecomputeChoice& choice,
           RecomputeReport& report) {
    // Read first: adding operators ends the planner's view of the graph.
    struct Planned {
      graph::OperatorId op;
      bool again;
      std::vector<graph::TensorId> inputs;
      std::vector<graph::TensorId> outputs;
      std::string_view type;
    };
    std::vector<Planned> plan;
    for (const auto& [op, again] : planner.schedule(choice)) {
      if (again) {
        plan.push_back({op, true, planner.clone_inputs(op), planner.clone_outputs(op),
                        planner.clone_definition(op).type});
        report.costly_clones += planner.facts().definitions[static_cast<size_t>(op)]->cheap ? 0 : 1;
        ++report.clones;
      } else {
        plan.push_back({op, false, {}, {}, {}});
      }
    }
    std::vector<graph::OperatorId> order;
    for (Planned& step : plan) {
      if (step.again) {
        order.push_back(clone(step.op, step.type, std::move(step.inputs), step.outputs));
        continue;
      }
      graph::Operator& op = graph_.op(step.op);
      if (op.phase != graph::Phase::forward) read_newest(op.inputs);
      order.push_back(step.op);
    }
    graph_.set_order(std::move(order));
  }

 private:
  void read_newest(std::vector<graph::TensorId>& inputs) const {
    for (graph::TensorId& input : inputs) {
      const graph::TensorId clone = newest_[static_cast<size_t>(input)];
      if (clone != graph::kNone) input = clone;
    }
  }

  graph::OperatorId clone(graph::OperatorId id, std::string_view type,
                          std::vector<graph::TensorId> inputs,
                          const std::vector<graph::TensorId>& outputs) {
    const graph::Operator op = graph_.op(id);
    read_newest(inputs);
    const graph::OperatorId made = graph_.add_operator(type, op.name + "/again", std::move(inputs),
                                                       op.attributes, graph::Phase::backward);
    for (size_t i = 0; i < outputs.size(); ++i) {
      newest_[static_cast<size_t>(outputs[i])] = graph_.op(made).outputs[i];
    }
    return made;
  }

  graph::Graph& graph_;
  std::vector<graph::TensorId> newest_;  // by tensor of the graph as it was: what its clone makes
};

}  // namespace

RecomputeReport recompute(graph::Graph& graph, RecomputePolicy policy,
                          const RecomputeOptions& options) {
  using Scope = RecomputePlanner::Scope;
  const bool any = policy == RecomputePolicy::all;
  const RecomputePlanner planner(graph, any ? Scope::any : Scope::cheap, options);
  RecomputeChoice choice = planner.none();
  if (any) {
    choice = choose_segments(planner, options.budget_bytes);
  } else if (policy == RecomputePolicy::automatic) {
    choice = choose_cheap(planner, options.budget_bytes);
  } else if (policy == RecomputePolicy::cheap &&
             planner.peak(planner.all()) < planner.peak(choice)) {
    choice = planner.all();
  }
  RecomputeReport report;
  report.peak_bytes = planner.peak(choice);
  if (choice != planner.none()) Cloner(graph).run(planner, choice, report);
  return report;
}

}  // namespace millrace::passes
