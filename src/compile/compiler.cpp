#include "compile/compiler.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/text.h"
#include "compile/arithmetic.h"
#include "compile/assembly.h"
#include "passes/autodiff.h"
#include "passes/fusion.h"
#include "passes/gradient_fusion.h"
#include "passes/in_place.h"
#include "passes/inference.h"
#include "passes/layout.h"
#include "passes/pipeline.h"
#include "passes/precision.h"
#include "passes/storage.h"

namespace millrace {
namespace {

class KernelLayouts : public LayoutOracle {
 public:
  explicit KernelLayouts(const KernelOptions& options) : options_(options) {}

  Wish wish(const Graph& graph, const Operator& op) const override {
    LayoutWish wanted = layouts_of(request_for(graph, op, options_));
    return {std::move(wanted.inputs), std::move(wanted.outputs)};
  }

 private:
  const KernelOptions& options_;
};

// Logits and embeddings are only of interest when evaluating, or to another stage; a training step
// need not keep them.
void drop_result(StageGraph& stage, std::string_view name) {
  const bool sent = std::any_of(stage.sends.begin(), stage.sends.end(),
                                [&](const StageEdge& edge) { return edge.name == name; });
  if (sent) return;
  Graph& graph = stage.graph;
  std::vector<TensorId> kept;
  for (TensorId id : graph.results()) {
    if (graph.tensor(id).name != name) kept.push_back(id);
  }
  graph.set_results(std::move(kept));
  // Where it is a sum over devices, nobody needs the sum either.
  const TensorId id = graph.find_tensor(name);
  if (id == kNone || graph.tensor(id).producer == kNone) return;
  const OperatorId producer = graph.tensor(id).producer;
  const bool read = !graph.consumers()[static_cast<size_t>(id)].empty();
  if (read || graph.op(producer).type != "all_reduce") return;
  std::vector<OperatorId> order = graph.order();
  std::erase(order, producer);
  graph.set_order(std::move(order));
}

// The backward pass of a whole network, or of a stage that only passes gradients on.
std::vector<ParameterGradient> add_backward(StageGraph& stage) {
  if (stage.receives.empty() && stage.sends.empty()) {
    return differentiate(stage.graph, stage.graph.find_tensor("loss"));
  }
  return differentiate_stage(stage).parameters;
}

bool computes_in_halves(const PrecisionSettings& settings) {
  return settings.is_half() && arithmetic_in_use(settings) == PrecisionSettings::Arithmetic::native;
}

StepMemory step_memory(const StepShape& shape) {
  return {.phased = shape.phasing != Phasing::whole,
          .updates_apart = shape.phasing == Phasing::micro_batches,
          .split_backward = shape.split_backward,
          .slots = shape.slots};
}

struct Compiled {
  Program program;
  int64_t planned_bytes = 0;  // of transient memory, as recomputation counts it
};

Compiled compile_once(StageGraph stage, const CompileOptions& options, int64_t budget_bytes = 0) {
  const KernelLayouts layouts(options.kernels);
  std::vector<ParameterGradient> gradients;
  RecomputeReport again;
  int in_place = 0;
  drop_result(stage, "logits");
  drop_result(stage, "embedding");
  PassPipeline pipeline;
  pipeline.add("fusion", fuse);
  if (computes_in_halves(options.precision)) {
    pipeline.add("precision", [&](Graph& g) {
      lower_precision(g, options.precision.type, options.precision.keep);
    });
  }
  pipeline.add("autodiff", [&](Graph&) { gradients = add_backward(stage); });
  pipeline.add("gradient_fusion", fuse_gradients);
  pipeline.add("optimizer",
               [&](Graph& g) { add_updates(g, gradients, options.optimizer, options.updates); });
  if (options.shape.split_backward) pipeline.add("backward_order", defer_weight_gradients);
  const bool stores = stores_in_16_bits(options.precision);
  const bool fetched = options.shape.phasing != Phasing::whole;
  pipeline.add("recompute", [&](Graph& g) {
    RecomputeOptions request = {budget_bytes, {}, step_memory(options.shape)};
    if (stores) request.storable = storable_tensors(g, options.precision, fetched);
    again = recompute(g, options.recompute, request);
  });
  if (stores) {
    pipeline.add("storage", [&options, fetched](Graph& g) {
      store_in_16_bits(g, options.precision, fetched);
    });
  }
  pipeline.add("layout", [&](Graph& g) { choose_layouts(g, layouts, options.layouts); });
  pipeline.add("in_place", [&](Graph& g) { in_place = assign_in_place(g); });
  pipeline.run(stage.graph, {options.dump_directory});
  Program program = assemble(stage.graph, options.kernels, options.shape);
  program.recomputed = again.clones;
  program.recomputed_costly = again.costly_clones;
  program.in_place = in_place;
  return {std::move(program), again.peak_bytes};
}

// As the policy says; where automatic recomputation exceeds the limit, the program that recomputes
// anything and comes close to it, or, if none stays within, the smallest.
Program training_program(const StageGraph& stage, const CompileOptions& options) {
  constexpr int kTries = 4;
  const int64_t limit = options.memory_limit;
  Program cheap = compile_once(stage, options).program;
  if (options.recompute != RecomputePolicy::automatic || limit <= 0 || cheap.arena_bytes <= limit) {
    return cheap;
  }
  CompileOptions any = options;
  any.recompute = RecomputePolicy::all;
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

Program evaluation_program(Graph graph, const CompileOptions& options, const Program* sharing) {
  const KernelLayouts layouts(options.kernels);
  std::map<std::string, Layout> fixed;
  if (sharing != nullptr) {
    for (const Slot& slot : sharing->state) fixed[slot.name] = slot.layout;
  }
  int in_place = 0;
  PassPipeline pipeline;
  pipeline.add("inference", make_inference);
  pipeline.add("fusion", fuse);
  pipeline.add("layout", [&](Graph& g) { choose_layouts(g, layouts, fixed); });
  pipeline.add("in_place", [&](Graph& g) { in_place = assign_in_place(g); });
  pipeline.run(graph, {});
  StepShape shape;
  shape.channel_bytes = options.shape.channel_bytes;
  Program program = assemble(graph, options.kernels, shape, sharing);
  program.in_place = in_place;
  return program;
}

// Rows of the first input.
int64_t batch_of(const Graph& graph) {
  for (TensorId id = 0; id < graph.tensor_count(); ++id) {
    const Tensor& tensor = graph.tensor(id);
    if (tensor.role == Role::input) return tensor.type.shape.at(0);
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
  fail_input("The job needs {} on {} but --device-memory allows {} ({}); {}.",
             format_bytes(static_cast<uint64_t>(program.arena_bytes)), options.device,
             format_bytes(static_cast<uint64_t>(limit)), describe(program.breakdown), remedy);
}

}  // namespace

// With a limit the direct convolutions come first: they need the least memory and no measuring,
// so a job that cannot fit is refused at once.
Program compile_stage(StageGraph stage, const CompileOptions& options) {
  const int64_t limit = options.memory_limit;
  if (limit <= 0) return training_program(stage, options);
  const int64_t batch = batch_of(stage.graph);
  CompileOptions direct = options;
  direct.kernels.convolution = ConvolutionAlgorithm::direct;
  Program smallest = training_program(stage, direct);
  if (smallest.arena_bytes > limit) refuse(smallest, options, batch);
  if (options.kernels.convolution == ConvolutionAlgorithm::direct) return smallest;
  Program program = training_program(stage, options);
  if (program.arena_bytes <= limit) return program;
  if (options.kernels.convolution == ConvolutionAlgorithm::winograd)
    refuse(program, options, batch);
  return smallest;
}

Program compile_training(Graph graph, const CompileOptions& options) {
  return compile_stage({0, std::move(graph), {}, {}}, options);
}

std::map<std::string, Layout> layouts_of_parameters(const Program& program) {
  std::map<std::string, Layout> layouts;
  for (const Slot& slot : program.state) {
    if (slot.role == Role::parameter) layouts[slot.name] = slot.layout;
  }
  return layouts;
}

Program compile_evaluation(Graph graph, const CompileOptions& options, const Program& training) {
  return evaluation_program(std::move(graph), options, &training);
}

Program compile_evaluation(Graph graph, const CompileOptions& options) {
  return evaluation_program(std::move(graph), options, nullptr);
}

std::string describe(const MemoryBreakdown& breakdown) {
  const auto text = [](int64_t bytes) { return format_bytes(static_cast<uint64_t>(bytes)); };
  return fmt::format(
      "weights {}, gradients {}, optimizer {}, activations {}, workspace {}, communication {}",
      text(breakdown.weights), text(breakdown.gradients), text(breakdown.optimizer),
      text(breakdown.activations), text(breakdown.workspace), text(breakdown.communication));
}

}  // namespace millrace
