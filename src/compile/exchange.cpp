#include "compile/exchange.h"

#include <numeric>
#include <stdexcept>

namespace millrace::compile {
namespace {

using Asked = graph::OperatorDefinition::Exchange;

class ExchangeMaker {
 public:
  ExchangeMaker(const graph::Operator& op, const kernels::KernelRequest& request,
                Instruction compute)
      : op_(op), request_(request), compute_(std::move(compute)) {}

  std::vector<Instruction> make(Asked asked) {
    switch (asked) {
      case Asked::none:
        break;
      case Asked::sum:
        if (is_alone()) break;
        require_plain(request_.inputs[0], true);
        return {sum({request_.inputs[0].elements()})};
      case Asked::scatter:
        if (is_alone()) break;
        require_plain(request_.inputs[0], true);
        return divide(InstructionKind::reduce_scatter, request_.inputs[0]);
      case Asked::gather:
        if (is_alone()) break;
        require_plain(request_.outputs[0], false);
        return divide(InstructionKind::all_gather, request_.outputs[0]);
      case Asked::sum_first:
        return sum_behind_kernel();
      case Asked::start_sums:
        return {start_sums()};
      case Asked::start_gather:
        return {start_gather()};
      case Asked::wait:
        return {wait()};
    }
    return {with_kernel(compute_)};
  }

 private:
  bool is_alone() const { return op_.attributes.integer("members") == 1; }

  void require_plain(const kernels::TensorSpec& tensor, bool sums) const {
    if (tensor.layout.is_plain() && (!sums || tensor.type.dtype == graph::DataType::f32)) return;
    throw std::logic_error("'" + op_.name + "' exchanges a tensor that is not plain or not f32");
  }

  Instruction with_kernel(Instruction instruction) const {
    instruction.kernel = kernels::make_kernel(request_, &instruction.implementation);
    instruction.workspace_bytes = static_cast<int64_t>(instruction.kernel->workspace_bytes());
    return instruction;
  }

  Instruction collective(InstructionKind kind, Exchange exchange) const {
    Instruction made = compute_;
    made.kind = kind;
    made.implementation = "collective";
    const int64_t elements =
        std::accumulate(exchange.counts.begin(), exchange.counts.end(), int64_t{0});
    made.exchanged_bytes = elements * exchange.element_bytes;
    if (exchange.wire != graph::DataType::f32) {
      made.exchanged_bytes = elements * graph::size_of(exchange.wire);
    }
    made.exchange = std::move(exchange);
    return made;
  }

  Instruction sum(std::vector<int64_t> counts) const {
    return collective(InstructionKind::all_reduce, {.counts = std::move(counts)});
  }

  // A tensor cut along an axis is rows, each the parts of all members one behind the other, while
  // collectives want all rows of the first member, then all of the second. The two orders are the
  // same where there is one row; a kernel turns one into the other elsewhere.
  std::vector<Instruction> divide(InstructionKind kind, const kernels::TensorSpec& whole) const {
    const auto axis = static_cast<size_t>(op_.attributes.integer("axis"));
    int64_t rows = 1;
    for (size_t i = 0; i < axis; ++i) rows *= whole.type.shape[i];
    Instruction moved =
        collective(kind, {.counts = {whole.elements()},
                          .element_bytes = graph::size_of(whole.type.dtype),
                          .block = whole.elements() / op_.attributes.integer("whole"),
                          .in_workspace = rows > 1});
    if (rows == 1) return {moved};
    Instruction order = with_kernel(compute_);
    order.arithmetic = 0;
    const bool scatters = kind == InstructionKind::reduce_scatter;
    (scatters ? moved : order).keeps_workspace = true;
    (scatters ? order : moved).written.clear();
    (scatters ? order : moved).workspace_bytes = order.workspace_bytes;
    (scatters ? moved : order).workspace_bytes = 0;
    return scatters ? std::vector{order, moved} : std::vector{moved, order};
  }

  std::vector<Instruction> sum_behind_kernel() const {
    std::vector<Instruction> made = {with_kernel(compute_)};
    if (is_alone()) return made;
    made.push_back(sum({1}));
    made.back().bytes_touched = 0;
    made.back().arithmetic = 0;
    return made;
  }

  std::vector<int64_t> tensors() const {
    std::vector<int64_t> counts;
    const auto count = static_cast<size_t>(op_.attributes.integer("tensors"));
    for (size_t i = 0; i < count; ++i) counts.push_back(request_.inputs[i].physical_elements());
    return counts;
  }

  Instruction start_sums() const {
    const std::vector<int64_t> counts = tensors();
    const int64_t staging = op_.attributes.integer("staging");
    const int64_t total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
    if (staging > 0 && staging < total) {
      throw std::logic_error("the buffer of '" + op_.name +
                             "' is too small for the layouts in use");
    }
    const bool scatters = op_.attributes.flag("scatter");
    Instruction made =
        collective(scatters ? InstructionKind::reduce_scatter : InstructionKind::all_reduce,
                   {.counts = counts,
                    .wire = graph::data_type_of(op_.attributes.text("wire")),
                    .in_place = scatters});
    made.ticket = op_.attributes.integer("ticket");
    return made;
  }

  Instruction start_gather() const {
    Instruction made =
        collective(InstructionKind::all_gather,
                   {.counts = {request_.inputs[0].physical_elements()}, .in_place = true});
    made.ticket = op_.attributes.integer("ticket");
    return made;
  }

  Instruction wait() const {
    Instruction made = compute_;
    made.kind = InstructionKind::wait;
    made.implementation = "collective";
    made.ticket = op_.attributes.integer("ticket");
    if (op_.attributes.has("tensors")) made.exchange.counts = tensors();
    return made;
  }

  const graph::Operator& op_;
  const kernels::KernelRequest& request_;
  const Instruction compute_;
};

}  // namespace

std::vector<Instruction> instructions_of(const graph::Operator& op,
                                         const graph::OperatorDefinition& definition,
                                         const kernels::KernelRequest& request,
                                         Instruction compute) {
  return ExchangeMaker(op, request, std::move(compute)).make(definition.exchange);
}

}  // namespace millrace::compile
