#include "compile/compiler.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/text.h"
#include "compile/arithmetic.h"
#include "compile/assembly.h"
#include "graph/operator_definition.h"
#include "passes/autodiff.h"
#include "passes/fusion.h"
#include "passes/gradient_fusion.h"
#include "passes/in_place.h"
#include "passes/inference.h"
#include "passes/layout.h"
#include "passes/norm_folding.h"
#include "passes/pipeline.h"
#include "passes/precision.h"
#include "passes/storage.h"

namespace millrace::compile {
namespace {

class KernelLayouts : public passes::LayoutOracle {
 public:
  explicit KernelLayouts(const kernels::KernelOptions& options) : options_(options) {}

  Wish wish(const graph::Graph& graph, const graph::Operator& op) const override {
    kernels::LayoutWish wanted = kernels::layouts_of(request_for(graph, op, options_));
    return {std::move(wanted.inputs), std::move(wanted.outputs)};
  }

 private:
  const kernels::KernelOptions& options_;
};

// Logits and embeddings are only of interest when evaluating, or to another stage; a training step
// need not keep them.
void drop_result(parallel::StageGraph& stage, std::string_view name) {
  const bool sent = std::any_of(stage.sends.begin(), stage.sends.end(),
                                [&](const parallel::StageEdge& edge) { return edge.name == name; });
  if (sent) return;
  graph::Graph& graph = stage.graph;
  std::vector<graph::TensorId> kept;
  for (graph::TensorId id : graph.results()) {
    if (graph.tensor(id).name != name) kept.push_back(id);
  }
  graph.set_results(std::move(kept));
  // Where it is a sum over devices, nobody needs the sum either.
  const graph::TensorId id = graph.find_tensor(name);
  if (id == graph::kNone || graph.tensor(id).producer == graph::kNone) return;
  const graph::OperatorId producer = graph.tensor(id).producer;
  const bool read = !graph.consumers()[static_cast<size_t>(id)].empty();
  const auto exchange = graph::definition_of(graph.op(producer)).exchange;
  if (read || exchange != graph::OperatorDefinition::Exchange::sum) return;
  std::vector<graph::OperatorId> order = graph.order();
  std::erase(order, producer);
  graph.set_order(std::move(order));
}

// The backward pass of a whole network, or of a stage that only passes gradients on.
std::vector<passes::ParameterGradient> add_backward(parallel::StageGraph& stage) {
  if (stage.receives.empty() && stage.sends.empty()) {
    return passes::differentiate(stage.graph, stage.graph.find_tensor("loss"));
  }
  return parallel::differentiate_stage(stage).parameters;
}

bool computes_in_halves(const passes::PrecisionSettings& settings) {
  return settings.is_half() &&
         arithmetic_in_use(settings) == passes::PrecisionSettings::Arithmetic::native;
}

passes::StepMemory step_memory(const StepShape& shape) {
  return {.phased = shape.phasing != Phasing::whole,
          .updates_apart = shape.phasing == Phasing::micro_batches,
          .split_backward = shape.split_backward,
          .slots = shape.slots};
}

struct Compiled {
  Program program;
  int64_t planned_bytes = 0;  // of transient memory, as recomputation counts it
};

Compiled compile_once(parallel::StageGraph stage, const CompileOptions& options,
                      int64_t budget_bytes = 0) {
  const KernelLayouts layouts(options.kernels);
  std::vector<passes::ParameterGradient> gradients;
  passes::RecomputeReport again;
  int in_place = 0;
  drop_result(stage, "logits");
  drop_result(stage, "embedding");
  passes::PassPipeline pipeline;
  pipeline.add("fusion", passes::fuse);
  if (computes_in_halves(options.precision)) {
    pipeline.add("precision", [&](graph::Graph& g) {
      passes::lower_precision(g, options.precision.type, options.precision.keep);
    });
  }
  pipeline.add("autodiff", [&](graph::Graph&) { gradients = add_backward(stage); });
  pipeline.add("gradient_fusion", passes::fuse_gradients);
  pipeline.add("optimizer", [&](graph::Graph& g) {
    passes::add_updates(g, gradients, options.optimizer, options.updates);
  });
  if (options.shape.split_backward) pipeline.add("backward_order", passes::defer_weight_gradients);
  const bool stores = stores_in_16_bits(options.precision);
  const bool fetched = options.shape.phasing != Phasing::whole;
  pipeline.add("recompute", [&](graph::Graph& g) {
    passes::RecomputeOptions request = {budget_bytes, {}, step_memory(options.shape)};
    if (stores) request.storable = passes::storable_tensors(g, options.precision, fetched);
    again = passes::recompute(g, options.recompute, request);
  });
  if (stores) {
    pipeline.add("storage", [&options, fetched](graph::Graph& g) {
      passes::store_in_16_bits(g, options.precision, fetched);
    });
  }
  // Those with fixed statistics that no gradient looks behind, as in an evaluation.
  if (!computes_in_halves(options.precision)) pipeline.add("norm_folding", passes::fold_norms);
  pipeline.add("layout",
               [&](graph::Graph& g) { passes::choose_layouts(g, layouts, options.layouts); });
  pipeline.add("in_place", [&](graph::Graph& g) { in_place = passes::assign_in_place(g); });
  pipeline.run(stage.graph, {options.dump_directory});
  Program program = assemble(stage.graph, options.kernels, options.shape);
  program.recomputed = again.clones;
  program.recomputed_costly = again.costly_clones;
  program.in_place = in_place;
  return {std::move(program), again.peak_bytes};
}

// As the policy says; where automatic recomputation exceeds the limit, the program that recomputes
// anything and comes close to it, or, if none stays within, the smallest.
Program training_program(const parallel::StageGraph& stage, const CompileOptions& options) {
  constexpr int kTries = 4;
  const int64_t limit = options.memory_limit;
  Program cheap = compile_once(stage, options).program;
  if (options.recompute != passes::RecomputePolicy::automatic || limit <= 0 ||
      cheap.arena_bytes <= limit) {
    return cheap;
  }
  CompileOptions any = options;
  any.recompute = passes::RecomputePolicy::all;
  Compiled least = compile_once(stage, any);
  if (least.program.arena_bytes > limit) {
    return least.program.arena_bytes < cheap.arena_bytes ? std::move(least.program) : cheap;
  }
  int64_t budget = limit - (least.program.arena_bytes - least.planned_bytes);
  for (int i = 0; i < kTries && budget > least.planned_bytes; ++i) {
    Compiled compiled = compile_once(stage, any, budget);
    if (compiled.program.arena_bytes <= limit) return std::move(compiled.program);
    budget = std::min(budget, compiled.planned_bytes) - (compiled.program.arena_bytes - limit);
  }
  return std::move(least.program);
}

Program evaluation_program(graph::Graph graph, const CompileOptions& options,
                           const Program* sharing) {
  const KernelLayouts layouts(options.kernels);
  std::map<std::string, graph::Layout> fixed;
  if (sharing != nullptr) {
    for (const Slot& slot : sharing->state) fixed[slot.name] = slot.layout;
  }
  int in_place = 0;
  passes::PassPipeline pipeline;
  pipeline.add("inference", passes::make_inference);
  pipeline.add("fusion", passes::fuse);
  pipeline.add("norm_folding", passes::fold_norms);
  pipeline.add("layout", [&](graph::Graph& g) { passes::choose_layouts(g, layouts, fixed); });
  pipeline.add("in_place", [&](graph::Graph& g) { in_place = passes::assign_in_place(g); });
  pipeline.run(graph, {});
  StepShape shape;
  shape.channels = options.shape.channels;
  Program program = assemble(graph, options.kernels, shape, sharing);
  program.in_place = in_place;
  return program;
}

// Rows of the first input.
int64_t batch_of(const graph::Graph& graph) {
  for (graph::TensorId id = 0; id < graph.tensor_count(); ++id) {
    const graph::Tensor& tensor = graph.tensor(id);
    if (tensor.role == graph::Role::input) return tensor.type.shape.at(0);
  }
  return 1;
}

[[noreturn]] void refuse(const Program& program, const CompileOptions& options, int64_t batch) {
  const int64_t limit = options.memory_limit;
  const int64_t transient = program.arena_bytes - program.memory.persistent();
  const int64_t room = limit - program.memory.persistent();
  std::string remedy = "even a batch of 1 would not fit; use a smaller model or a larger device";
  const int64_t smaller = room > 0 ? std::min(batch - 1, batch * room / transient) : 0;
  if (smaller >= 1)
    remedy = fmt::format("a batch of about {} instead of {} would fit", smaller, batch);
  fail_input("The job needs {} on {} but ‹device_memory› allows {} ({}); {}.",
             format_bytes(static_cast<uint64_t>(program.arena_bytes)), options.device,
             format_bytes(static_cast<uint64_t>(limit)), describe(program.breakdown), remedy);
}

}  // namespace

// With a limit the direct convolutions come first: they need the least memory and no measuring,
// so a job that cannot fit is refused at once.
Program compile_stage(parallel::StageGraph stage, const CompileOptions& options) {
  const int64_t limit = options.memory_limit;
  if (limit <= 0) return training_program(stage, options);
  const int64_t batch = batch_of(stage.graph);
  CompileOptions direct = options;
  direct.kernels.convolution = kernels::ConvolutionAlgorithm::direct;
  Program smallest = training_program(stage, direct);
  if (smallest.arena_bytes > limit) refuse(smallest, options, batch);
  if (options.kernels.convolution == kernels::ConvolutionAlgorithm::direct) return smallest;
  Program program = training_program(stage, options);
  if (program.arena_bytes <= limit) return program;
  if (options.kernels.convolution == kernels::ConvolutionAlgorithm::winograd)
    refuse(program, options, batch);
  return smallest;
}

Program compile_training(graph::Graph graph, const CompileOptions& options) {
  return compile_stage({0, std::move(graph), {}, {}}, options);
}

std::map<std::string, graph::Layout> layouts_of_parameters(const Program& program) {
  std::map<std::string, graph::Layout> layouts;
  for (const Slot& slot : program.state) {
    if (slot.role == graph::Role::parameter) layouts[slot.name] = slot.layout;
  }
  return layouts;
}

Program compile_evaluation(graph::Graph graph, const CompileOptions& options,
                           const Program& training) {
  return evaluation_program(std::move(graph), options, &training);
}

Program compile_evaluation(graph::Graph graph, const CompileOptions& options) {
  return evaluation_program(std::move(graph), options, nullptr);
}

std::string describe(const MemoryBreakdown& breakdown) {
  const auto text = [](int64_t bytes) { return format_bytes(static_cast<uint64_t>(bytes)); };
  return fmt::format(
      "weights {}, gradients {}, optimizer {}, activations {}, workspace {}, communication {}",
      text(breakdown.weights), text(breakdown.gradients), text(breakdown.optimizer),
      text(breakdown.activations), text(breakdown.workspace), text(breakdown.communication));
}

}  // namespace millrace::compile
