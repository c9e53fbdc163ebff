#include "compile/assembly.h"

#include <algorithm>
#include <map>
#include <stdexcept>

#include "compile/memory_plan.h"
#include "graph/operator_definition.h"
#include "passes/liveness.h"

namespace millrace {
namespace {

TensorSpec spec_of(const Tensor& tensor) { return {tensor.type, tensor.layout}; }

Slot slot_of(const Tensor& tensor) {
  return {tensor.name,        tensor.type, tensor.layout,          tensor.role,
          tensor.initializer, 0,           spec_of(tensor).bytes(), tensor.slice};
}

std::vector<bool> used_tensors(const Graph& graph) {
  std::vector<bool> used(static_cast<size_t>(graph.tensor_count()), false);
  for (OperatorId id : graph.order()) {
    for (TensorId input : graph.op(id).inputs) used[static_cast<size_t>(input)] = true;
  }
  return used;
}

// A transient buffer and what it counts as.
struct Buffer {
  BufferRequest request;
  TensorId tensor = kNone;  // kNone: the workspace of instruction `instruction`
  size_t instruction = 0;
  Role role = Role::activation;
};

// Adds up what is in use at the peak; what no buffer uses then counts as workspace.
void break_down(Program& program, const std::vector<Buffer>& buffers, const MemoryPlan& plan) {
  MemoryBreakdown& sums = program.breakdown;
  for (const Slot& slot : program.state) {
    (slot.role == Role::optimizer_state ? sums.optimizer : sums.weights) += aligned(slot.bytes);
  }
  int64_t in_use = 0;
  for (const Buffer& buffer : buffers) {
    if (buffer.request.first > plan.peak_position || buffer.request.last < plan.peak_position) {
      continue;
    }
    const int64_t bytes = aligned(buffer.request.bytes);
    in_use += bytes;
    if (buffer.tensor == kNone) {
      sums.workspace += bytes;
    } else {
      (buffer.role == Role::gradient ? sums.gradients : sums.activations) += bytes;
    }
  }
  sums.workspace += plan.bytes - in_use;
}

class Assembler {
 public:
  Assembler(const Graph& graph, const KernelOptions& options) : graph_(graph), options_(options) {}

  Program run(const std::vector<Slot>& shared, int64_t shared_bytes) {
    place_state(shared, shared_bytes);
    make_kernels();
    place_transients();
    return std::move(program_);
  }

 private:
  void place_state(const std::vector<Slot>& shared, int64_t shared_bytes) {
    offsets_.assign(static_cast<size_t>(graph_.tensor_count()), kNone);
    std::map<std::string, const Slot*> known;
    for (const Slot& slot : shared) known[slot.name] = &slot;
    const std::vector<bool> used = used_tensors(graph_);
    int64_t next = 0;
    for (TensorId id = 0; id < graph_.tensor_count(); ++id) {
      const Tensor& tensor = graph_.tensor(id);
      if (!used[static_cast<size_t>(id)] || !is_persistent(tensor.role) ||
          tensor.role == Role::input) {
        continue;
      }
      Slot slot = slot_of(tensor);
      if (shared.empty()) {
        slot.offset = next;
        next += aligned(slot.bytes);
      } else {
        const auto found = known.find(slot.name);
        if (found == known.end() || found->second->layout != slot.layout) {
          throw std::logic_error("state slot '" + slot.name + "' differs between programs");
        }
        slot.offset = found->second->offset;
      }
      offsets_[static_cast<size_t>(id)] = slot.offset;
      program_.state.push_back(std::move(slot));
    }
    program_.persistent_bytes = shared.empty() ? next : shared_bytes;
  }

  void make_kernels() {
    for (size_t position = 0; position < graph_.order().size(); ++position) {
      const Operator& op = graph_.op(graph_.order()[position]);
      const OperatorDefinition& definition = definition_of(op.type);
      if (definition.is_view) continue;
      const KernelRequest request = request_for(graph_, op, options_);
      Instruction instruction;
      instruction.name = op.name;
      instruction.type = op.type;
      instruction.phase = op.phase;
      instruction.kernel = make_kernel(request, &instruction.implementation);
      Inference inference = {op, {}};
      for (const TensorSpec& input : request.inputs) {
        inference.inputs.push_back(input.type);
        instruction.bytes_touched += input.bytes();
      }
      for (const TensorSpec& output : request.outputs) {
        instruction.arithmetic += static_cast<double>(output.elements());
        instruction.bytes_touched += output.bytes();
      }
      if (definition.arithmetic != nullptr) {
        instruction.arithmetic = definition.arithmetic(inference);
      }
      program_.reorders += op.type == "reorder" ? 1 : 0;
      program_.instructions.push_back(std::move(instruction));
      positions_.push_back(position);
    }
  }

  void place_transients() {
    const std::vector<TensorId> roots = storage_roots(graph_);
    const std::vector<bool> used = used_tensors(graph_);
    const int end = std::max(0, static_cast<int>(graph_.order().size()) - 1);
    std::vector<Buffer> buffers;
    for (const Lifetime& life : lifetimes(graph_)) {
      buffers.push_back(
          {{life.first, life.last, life.bytes}, life.tensor, 0, graph_.tensor(life.tensor).role});
    }
    for (TensorId id = 0; id < graph_.tensor_count(); ++id) {
      const Tensor& tensor = graph_.tensor(id);
      if (tensor.role != Role::input || !used[static_cast<size_t>(id)]) continue;
      buffers.push_back({{0, end, spec_of(tensor).bytes()}, id, 0, Role::input});
    }
    for (size_t i = 0; i < program_.instructions.size(); ++i) {
      const auto bytes = static_cast<int64_t>(program_.instructions[i].kernel->workspace_bytes());
      const auto position = static_cast<int>(positions_[i]);
      if (bytes > 0) buffers.push_back({{position, position, bytes}, kNone, i});
    }

    std::vector<BufferRequest> requests;
    for (const Buffer& buffer : buffers) requests.push_back(buffer.request);
    const MemoryPlan plan = plan_memory(requests);
    const int64_t base = program_.persistent_bytes;
    for (size_t i = 0; i < buffers.size(); ++i) {
      const int64_t offset = base + plan.offsets[i];
      if (buffers[i].tensor == kNone) {
        program_.instructions[buffers[i].instruction].workspace = offset;
      } else {
        offsets_[static_cast<size_t>(buffers[i].tensor)] = offset;
      }
    }
    program_.arena_bytes = base + plan.bytes;
    break_down(program_, buffers, plan);
    bind(roots);
  }

  int64_t offset_of(const std::vector<TensorId>& roots, TensorId id) const {
    const int64_t offset = offsets_[static_cast<size_t>(roots[static_cast<size_t>(id)])];
    if (offset == kNone) {
      throw std::logic_error("tensor '" + graph_.tensor(id).name + "' has no place");
    }
    return offset;
  }

  void bind(const std::vector<TensorId>& roots) {
    for (size_t i = 0; i < program_.instructions.size(); ++i) {
      const Operator& op = graph_.op(graph_.order()[positions_[i]]);
      Instruction& instruction = program_.instructions[i];
      for (TensorId id : op.inputs) instruction.inputs.push_back(offset_of(roots, id));
      for (TensorId id : op.outputs) instruction.outputs.push_back(offset_of(roots, id));
    }
    const std::vector<bool> used = used_tensors(graph_);
    for (TensorId id = 0; id < graph_.tensor_count(); ++id) {
      if (graph_.tensor(id).role != Role::input || !used[static_cast<size_t>(id)]) continue;
      program_.inputs.push_back(slot_of(graph_.tensor(id)));
      program_.inputs.back().offset = offset_of(roots, id);
    }
    for (TensorId id : graph_.results()) {
      program_.results.push_back(slot_of(graph_.tensor(id)));
      program_.results.back().offset = offset_of(roots, id);
    }
  }

  const Graph& graph_;
  const KernelOptions& options_;
  Program program_;
  std::vector<int64_t> offsets_;   // by storage root
  std::vector<size_t> positions_;  // of each instruction in the order
};

}  // namespace

KernelRequest request_for(const Graph& graph, const Operator& op, const KernelOptions& options) {
  KernelRequest request = {op, {}, {}, options};
  for (TensorId id : op.inputs) request.inputs.push_back(spec_of(graph.tensor(id)));
  for (TensorId id : op.outputs) request.outputs.push_back(spec_of(graph.tensor(id)));
  return request;
}

Program assemble(const Graph& graph, const KernelOptions& options, const std::vector<Slot>& shared,
                 int64_t shared_bytes) {
  return Assembler(graph, options).run(shared, shared_bytes);
}

}  // namespace millrace
