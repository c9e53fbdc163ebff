#include "compile/assembly.h"

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>
#include <string_view>

#include "base/text.h"
#include "compile/copies.h"
#include "compile/exchange.h"
#include "compile/memory_plan.h"
#include "graph/operator_definition.h"
#include "passes/autodiff.h"
#include "passes/liveness.h"
#include "passes/rewrite.h"

namespace millrace::compile {
namespace {

kernels::TensorSpec spec_of(const graph::Tensor& tensor) { return {tensor.type, tensor.layout}; }

Slot slot_of(const graph::Tensor& tensor) {
  return {tensor.name,
          tensor.type,
          tensor.layout,
          tensor.role,
          tensor.initializer,
          {},
          passes::bytes_of(tensor),
          tensor.slice,
          tensor.part};
}

using ParameterNames = std::set<std::string, std::less<>>;

ParameterNames parameters_of(const graph::Graph& graph) {
  ParameterNames names;
  for (graph::TensorId id = 0; id < graph.tensor_count(); ++id) {
    if (graph.tensor(id).role == graph::Role::parameter) names.insert(graph.tensor(id).name);
  }
  return names;
}

// Operators that were added to a network are named behind what they belong to: an operator of it,
// or a parameter or its gradient, which are named behind their layer.
std::string layer_of(const ParameterNames& parameters, const graph::Operator& op) {
  const std::string_view name = std::string_view(op.name).substr(0, op.name.find('/'));
  for (size_t end = name.size(); end != std::string_view::npos; end = name.rfind('.', end - 1)) {
    const std::string_view owner = name.substr(0, end);
    if (parameters.contains(owner)) return std::string(owner.substr(0, owner.rfind('.')));
  }
  return std::string(name);
}

std::vector<bool> used_tensors(const graph::Graph& graph) {
  std::vector<bool> used(static_cast<size_t>(graph.tensor_count()), false);
  for (graph::OperatorId id : graph.order()) {
    for (graph::TensorId input : graph.op(id).inputs) used[static_cast<size_t>(input)] = true;
  }
  return used;
}

// A transient buffer and what it counts as.
struct Buffer {
  BufferRequest request;
  graph::TensorId tensor = graph::kNone;  // kNone: the workspace of instruction `instruction`
  size_t instruction = 0;
  graph::Role role = graph::Role::activation;
  ArenaRegion region = ArenaRegion::scratch;
};

int64_t& line_of(MemoryBreakdown& sums, const Buffer& buffer) {
  if (buffer.tensor == graph::kNone) return sums.workspace;
  if (buffer.role == graph::Role::gradient) return sums.gradients;
  if (buffer.role == graph::Role::communication) return sums.communication;
  return sums.activations;
}

// Adds up what is in use at the peak of a region, `copies` times; what no buffer uses then counts
// as workspace.
void break_down(MemoryBreakdown& sums, const std::vector<Buffer>& buffers, ArenaRegion region,
                const MemoryPlan& plan, int copies) {
  int64_t in_use = 0;
  for (const Buffer& buffer : buffers) {
    if (buffer.region != region || buffer.request.first > plan.peak_position ||
        buffer.request.last < plan.peak_position) {
      continue;
    }
    const int64_t bytes = aligned(buffer.request.bytes);
    in_use += bytes;
    line_of(sums, buffer) += copies * bytes;
  }
  sums.workspace += copies * (plan.bytes - in_use);
}

void break_down_state(Program& program) {
  MemoryBreakdown& sums = program.breakdown;
  for (const Slot& slot : program.state) {
    const int64_t bytes = aligned(slot.bytes);
    if (slot.role == graph::Role::optimizer_state) {
      sums.optimizer += bytes;
    } else if (slot.role == graph::Role::accumulator) {
      sums.gradients += bytes;
    } else {
      sums.weights += slot.role == graph::Role::parameter ? bytes * program.memory.versions : bytes;
    }
  }
}

class Assembler {
 public:
  Assembler(const graph::Graph& graph, const kernels::KernelOptions& options,
            const StepShape& shape)
      : graph_(graph), options_(options), shape_(shape) {}

  Program run(const Program* sharing) {
    find_phases();
    place_state(sharing);
    make_kernels();
    place_transients();
    add_copies(program_, shape_.channels);
    return std::move(program_);
  }

 private:
  // Positions in the order where the backward and the update phase begin, and the part of backward
  // that may wait.
  void find_phases() {
    const std::vector<graph::OperatorId>& order = graph_.order();
    backward_ = update_ = order.size();
    if (shape_.phasing == Phasing::whole) return;
    for (size_t i = order.size(); i-- > 0;) {
      const graph::Phase phase = graph_.op(order[i]).phase;
      if (phase != graph::Phase::forward) backward_ = i;
      if (phase == graph::Phase::update && shape_.phasing == Phasing::micro_batches) update_ = i;
    }
    for (size_t i = 0; i < order.size(); ++i) {
      const graph::Phase phase = graph_.op(order[i]).phase;
      const bool update = shape_.phasing == Phasing::micro_batches && phase == graph::Phase::update;
      if ((phase == graph::Phase::forward) != (i < backward_) || update != (i >= update_)) {
        throw std::logic_error("'" + graph_.op(order[i]).name + "' stands in another phase");
      }
    }
    weights_ = update_;
    if (!shape_.split_backward) return;
    const std::vector<graph::OperatorId> list = passes::weight_gradient_operators(graph_);
    const std::set<graph::OperatorId> apart(list.begin(), list.end());
    while (weights_ > backward_ && apart.contains(order[weights_ - 1])) --weights_;
  }

  int phase_at(int position) const {
    const auto place = static_cast<size_t>(position);
    return place < backward_ ? 0 : place < weights_ ? 1 : place < update_ ? 2 : 3;
  }

  void place_state(const Program* sharing) {
    addresses_.assign(static_cast<size_t>(graph_.tensor_count()), {});
    placed_.assign(static_cast<size_t>(graph_.tensor_count()), false);
    std::map<std::string, const Slot*> known;
    MemoryMap& memory = program_.memory;
    memory.slots = shape_.slots;
    memory.versions = shape_.versions;
    if (sharing != nullptr) {
      for (const Slot& slot : sharing->state) known[slot.name] = &slot;
      memory = sharing->memory;
      memory.slots = 1;
      memory.saved = 0;
    }
    const std::vector<bool> used = used_tensors(graph_);
    for (graph::TensorId id = 0; id < graph_.tensor_count(); ++id) {
      const graph::Tensor& tensor = graph_.tensor(id);
      if (!used[static_cast<size_t>(id)] || !graph::is_persistent(tensor.role) ||
          tensor.role == graph::Role::input) {
        continue;
      }
      Slot slot = slot_of(tensor);
      if (sharing == nullptr) {
        const bool versioned = tensor.role == graph::Role::parameter;
        int64_t& end = versioned ? memory.weights : memory.state;
        slot.address = {
            versioned ? ArenaRegion::weights : ArenaRegion::state, end, {slot.bytes, id}};
        end += aligned(slot.bytes);
      } else {
        const auto found = known.find(slot.name);
        if (found == known.end() || found->second->layout != slot.layout) {
          throw std::logic_error("state slot '" + slot.name + "' differs between programs");
        }
        slot.address = found->second->address;
      }
      put(id, slot.address);
      program_.state.push_back(std::move(slot));
    }
  }

  void put(graph::TensorId id, const Address& address) {
    addresses_[static_cast<size_t>(id)] = address;
    placed_[static_cast<size_t>(id)] = true;
  }

  void make_kernels() {
    const ParameterNames parameters = parameters_of(graph_);
    for (size_t position = 0; position < graph_.order().size(); ++position) {
      const graph::Operator& op = graph_.op(graph_.order()[position]);
      const graph::OperatorDefinition& definition = graph::definition_of(op.type);
      if (definition.is_view) continue;
      const kernels::KernelRequest request = request_for(graph_, op, options_);
      Instruction compute;
      compute.name = op.name;
      compute.type = op.type;
      compute.layer = layer_of(parameters, op);
      compute.phase = op.phase;
      graph::Inference inference = {op, {}};
      for (const kernels::TensorSpec& input : request.inputs) {
        inference.inputs.push_back(input.type);
        compute.bytes_touched += input.bytes();
      }
      for (const kernels::TensorSpec& output : request.outputs) {
        compute.arithmetic += static_cast<double>(output.elements());
        compute.bytes_touched += output.bytes();
      }
      if (definition.arithmetic != nullptr) compute.arithmetic = definition.arithmetic(inference);
      compute.written = written_by(op, definition, request);
      for (Instruction& made : instructions_of(op, definition, request, std::move(compute))) {
        program_.instructions.push_back(std::move(made));
        positions_.push_back(position);
      }
      program_.reorders += definition.changes_layout ? 1 : 0;
      if (definition.precedes_agreement) program_.agreement = program_.instructions.size() - 1;
      if (definition.looks_for_overflow) {
        program_.checked = split(op.attributes.text("parameters"), ' ');
      }
    }
    list_tasks();
  }

  std::vector<kernels::WrittenTensor> written_by(const graph::Operator& op,
                                                 const graph::OperatorDefinition& definition,
                                                 const kernels::KernelRequest& request) const {
    std::vector<kernels::WrittenTensor> written;
    const auto add = [&](graph::TensorId id, const kernels::TensorSpec& spec, bool is_output,
                         size_t index) {
      const graph::Tensor& tensor = graph_.tensor(id);
      written.push_back(
          {tensor.name, spec.type.dtype, spec.physical_elements(), is_output, index, tensor.role});
    };
    for (size_t i = 0; i < op.outputs.size(); ++i) add(op.outputs[i], request.outputs[i], true, i);
    for (const int mutated : definition.mutated_inputs) {
      const auto i = static_cast<size_t>(mutated);
      if (i < op.inputs.size()) add(op.inputs[i], request.inputs[i], false, i);
    }
    return written;
  }

  void list_tasks() {
    const size_t count = program_.instructions.size();
    if (shape_.phasing == Phasing::whole) {
      program_.tasks = {{parallel::Work::forward, 0, count}};
      return;
    }
    const auto first_from = [&](size_t position) {
      return static_cast<size_t>(std::lower_bound(positions_.begin(), positions_.end(), position) -
                                 positions_.begin());
    };
    const size_t backward = first_from(backward_);
    const size_t weights = first_from(weights_);
    const size_t update = first_from(update_);
    const bool split = shape_.split_backward;
    program_.tasks = {
        {parallel::Work::forward, 0, backward},
        {split ? parallel::Work::backward_input : parallel::Work::backward, backward, weights}};
    if (split) program_.tasks.push_back({parallel::Work::backward_weights, weights, update});
    if (shape_.phasing == Phasing::micro_batches) {
      program_.tasks.push_back({parallel::Work::update, update, count});
    }
  }

  // Inputs are written before a run: those that only the backward pass reads, at its beginning.
  BufferRequest life_of_input(graph::TensorId id, const std::vector<graph::OperatorId>& readers,
                              int end) const {
    const int64_t bytes = passes::bytes_of(graph_.tensor(id));
    if (shape_.phasing == Phasing::whole) return {0, end, bytes};
    std::vector<int> positions;
    for (graph::OperatorId reader : readers) positions.push_back(position_of(reader));
    const int first = *std::min_element(positions.begin(), positions.end());
    const int last = *std::max_element(positions.begin(), positions.end());
    return {phase_at(first) == 0 ? 0 : static_cast<int>(backward_) - 1, last, bytes};
  }

  int position_of(graph::OperatorId id) const {
    const auto found = std::find(graph_.order().begin(), graph_.order().end(), id);
    return static_cast<int>(found - graph_.order().begin());
  }

  std::vector<Buffer> transient_buffers() const {
    const bool whole = shape_.phasing == Phasing::whole;
    const int end = std::max(0, static_cast<int>(graph_.order().size()) - 1);
    const std::vector<graph::TensorId> roots = passes::storage_roots(graph_);
    std::vector<bool> holds_result(roots.size(), false);
    for (graph::TensorId id : graph_.results()) {
      holds_result[static_cast<size_t>(roots[static_cast<size_t>(id)])] = true;
    }
    std::vector<Buffer> buffers;
    for (const passes::Lifetime& life : passes::lifetimes(graph_, !whole)) {
      Buffer buffer = {
          {life.first, life.last, life.bytes}, life.tensor, 0, graph_.tensor(life.tensor).role};
      const bool result = holds_result[static_cast<size_t>(life.tensor)];
      if (!whole && (result || phase_at(life.first) != phase_at(life.last))) {
        buffer.region = ArenaRegion::saved;
      }
      // What another device or the caller fetches stays until the next phase has begun.
      if (!whole && result) {
        const int next = static_cast<int>(phase_at(life.first) == 0 ? backward_ : weights_);
        buffer.request.last = std::max(life.last, std::min(next, end));
      }
      buffers.push_back(buffer);
    }
    // Readers of a view read what it is a view of.
    std::vector<std::vector<graph::OperatorId>> readers(roots.size());
    const auto consumers = graph_.consumers();
    for (size_t id = 0; id < roots.size(); ++id) {
      std::vector<graph::OperatorId>& all = readers[static_cast<size_t>(roots[id])];
      all.insert(all.end(), consumers[id].begin(), consumers[id].end());
    }
    for (graph::TensorId id = 0; id < graph_.tensor_count(); ++id) {
      const std::vector<graph::OperatorId>& own = readers[static_cast<size_t>(id)];
      if (graph_.tensor(id).role != graph::Role::input || own.empty()) continue;
      buffers.push_back({life_of_input(id, own, end), id, 0, graph::Role::input,
                         whole ? ArenaRegion::scratch : ArenaRegion::saved});
    }
    for (size_t i = 0; i < program_.instructions.size(); ++i) {
      const int64_t bytes = program_.instructions[i].workspace_bytes;
      const auto position = static_cast<int>(positions_[i]);
      if (bytes > 0) buffers.push_back({{position, position, bytes}, graph::kNone, i});
    }
    return buffers;
  }

  void place_transients() {
    const std::vector<Buffer> buffers = transient_buffers();
    break_down_state(program_);
    program_.memory.saved = place_region(buffers, ArenaRegion::saved, shape_.slots);
    program_.memory.scratch = place_region(buffers, ArenaRegion::scratch, 1);
    program_.memory.channels = aligned(parallel::channel_bytes(shape_.channels));
    program_.breakdown.communication += program_.memory.channels;
    program_.arena_bytes = program_.memory.total();
    bind(passes::storage_roots(graph_));
  }

  // The bytes of one copy.
  int64_t place_region(const std::vector<Buffer>& buffers, ArenaRegion region, int copies) {
    std::vector<BufferRequest> requests;
    std::vector<const Buffer*> placed;
    for (const Buffer& buffer : buffers) {
      if (buffer.region != region) continue;
      requests.push_back(buffer.request);
      placed.push_back(&buffer);
    }
    const MemoryPlan plan = plan_memory(requests);
    for (size_t i = 0; i < placed.size(); ++i) {
      const bool workspace = placed[i]->tensor == graph::kNone;
      const int buffer = workspace
                             ? graph_.tensor_count() + static_cast<int>(placed[i]->instruction)
                             : placed[i]->tensor;
      const Address address = {region, plan.offsets[i], {placed[i]->request.bytes, buffer}};
      if (workspace) {
        program_.instructions[placed[i]->instruction].workspace = address;
      } else {
        put(placed[i]->tensor, address);
      }
    }
    break_down(program_.breakdown, buffers, region, plan, copies);
    return plan.bytes;
  }

  Address address_of(const std::vector<graph::TensorId>& roots, graph::TensorId id) const {
    const auto root = static_cast<size_t>(roots[static_cast<size_t>(id)]);
    if (!placed_[root]) {
      throw std::logic_error("tensor '" + graph_.tensor(id).name + "' has no place");
    }
    return addresses_[root];
  }

  void bind(const std::vector<graph::TensorId>& roots) {
    for (size_t i = 0; i < program_.instructions.size(); ++i) {
      const graph::Operator& op = graph_.op(graph_.order()[positions_[i]]);
      Instruction& instruction = program_.instructions[i];
      if (instruction.keeps_workspace) {
        instruction.workspace = program_.instructions[i - 1].workspace;
      }
      for (graph::TensorId id : op.inputs) instruction.inputs.push_back(address_of(roots, id));
      for (graph::TensorId id : op.outputs) instruction.outputs.push_back(address_of(roots, id));
      for (const kernels::WrittenTensor& tensor : instruction.written) {
        if (!tensor.is_output) instruction.inputs[tensor.index].extent.written = true;
      }
    }
    const std::vector<bool> used = used_tensors(graph_);
    for (graph::TensorId id = 0; id < graph_.tensor_count(); ++id) {
      if (graph_.tensor(id).role != graph::Role::input || !used[static_cast<size_t>(id)]) continue;
      program_.inputs.push_back(slot_of(graph_.tensor(id)));
      program_.inputs.back().address = address_of(roots, id);
    }
    for (graph::TensorId id : graph_.results()) {
      program_.results.push_back(slot_of(graph_.tensor(id)));
      program_.results.back().address = address_of(roots, id);
    }
  }

  const graph::Graph& graph_;
  const kernels::KernelOptions& options_;
  const StepShape shape_;
  size_t backward_ = 0;  // position of the first operator of the backward phase
  size_t weights_ = 0;   // of the part of it that may wait
  size_t update_ = 0;
  Program program_;
  std::vector<Address> addresses_;  // by storage root
  std::vector<bool> placed_;
  std::vector<size_t> positions_;  // of each instruction in the order
};

}  // namespace

kernels::KernelRequest request_for(const graph::Graph& graph, const graph::Operator& op,
                                   const kernels::KernelOptions& options) {
  kernels::KernelRequest request = {op, {}, {}, options};
  for (graph::TensorId id : op.inputs) request.inputs.push_back(spec_of(graph.tensor(id)));
  for (graph::TensorId id : op.outputs) request.outputs.push_back(spec_of(graph.tensor(id)));
  return request;
}

Program assemble(const graph::Graph& graph, const kernels::KernelOptions& options,
                 const StepShape& shape, const Program* sharing) {
  return Assembler(graph, options, shape).run(sharing);
}

}  // namespace millrace::compile
