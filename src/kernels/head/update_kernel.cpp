#include <cmath>
#include <cstring>

#include "base/half.h"
#include "kernels/head/head_kernels.h"
#include "kernels/head/product_maker.h"
#include "kernels/head/row_update.h"
#include "kernels/head/softmax_block.h"

namespace millrace {
namespace {

constexpr int64_t kRowsAhead = 2;

class UpdateKernel final : public Kernel {
 public:
  UpdateKernel(const HeadProblem& problem, const RowUpdate& update)
      : problem_(problem),
        update_(update),
        maker_(problem_),
        to_embeddings_({.m = problem.batch,
                        .n = problem.dimension,
                        .k = problem.rows,
                        .type = maker_.operand(),
                        .transposed_a = true,
                        .accumulates = true},
                       problem.parts),
        to_centres_({.m = problem.rows,
                     .n = problem.dimension,
                     .k = problem.batch,
                     .type = maker_.operand(),
                     .packed_b = true},
                    problem.parts) {
    const int64_t batch = problem.batch;
    const int64_t dimension = problem.dimension;
    WorkspaceBook shared;
    maker_.book_shared(shared);
    packed_ = shared.book(to_centres_.packed_bytes());
    maximum_ = shared.floats(batch);
    weight_ = shared.floats(batch);
    WorkspaceBook part;
    maker_.book_part(part);
    gradients_ = part.floats(problem.block_elements());
    operands_ = part.floats(problem.block_elements());
    along_ = part.floats(problem.rows);
    scratch_ = part.floats(std::max(batch, update.scratch_elements()));
    of_embeddings_ = part.floats(batch * dimension);
    of_centres_ = part.floats(problem.rows * dimension);
    scratchpad_ =
        part.book(std::max(to_embeddings_.scratchpad_bytes(), to_centres_.scratchpad_bytes()));
    memory_ = {shared.size(), part.size(), problem.parts};
  }

  uint64_t workspace_bytes() const override { return memory_.size(); }

  void run(const KernelArguments& a) override {
    const Sample sample(a.input<int32_t>(3), problem_.range, problem_.batch, problem_.sample_rate);
    const CentreRows centres = {a.inputs[5], problem_.storage, problem_.dimension};
    const ProductMaker::Job job = {
        sample, centres, problem_.blocks(sample.count()), a.input<float>(4), true, a.workspace};
    const RowUpdate update = update_.at_step(*a.step);
    std::byte* first_part = part_of(a, 0);
    maker_.pack(a.input<float>(2), a.workspace, first_part);
    to_centres_.pack(a.input<float>(2), false, first_part + scratchpad_, a.workspace + packed_);
    for (int64_t i = 0; i < problem_.batch; ++i) {
      booked<float>(a.workspace, maximum_)[i] = a.input<float>(1)[3 * i];
      booked<float>(a.workspace, weight_)[i] = a.input<float>(0)[3 * i + 1];
    }
    each_part(problem_, job.blocks, [&](int part, int64_t first, int64_t last) {
      std::byte* own = part_of(a, part);
      std::memset(own + of_embeddings_, 0, embedding_bytes());
      for (int64_t number = first; number < last; ++number) {
        const HeadBlock block = maker_.make(job, number, part, own);
        differentiate(block, sample, a, own);
        multiply(block, a, part, own);
        step(block, centres, update, a, own);
      }
    });
    add_parts(a);
  }

 private:
  std::byte* part_of(const KernelArguments& a, int part) const {
    return memory_.of_part(a.workspace, part);
  }
  size_t embedding_bytes() const {
    return static_cast<size_t>(problem_.batch * problem_.dimension) * sizeof(float);
  }

  // The gradients of the block's products, and how far each row's gradient lies along its centre.
  void differentiate(const HeadBlock& block, const Sample& sample, const KernelArguments& a,
                     std::byte* own) const {
    auto* gradients = booked<float>(own, gradients_);
    auto* along = booked<float>(own, along_);
    product_gradients({block.products, block.factors, block.count, problem_.batch},
                      {booked<float>(a.workspace, maximum_), booked<float>(a.workspace, weight_)},
                      gradients, along, booked<float>(own, scratch_));
    const auto* of_statistics = a.input<float>(0);
    const auto* statistics = a.input<float>(1);
    each_target(problem_, sample, block, [&](int64_t i, int64_t row) {
      const int64_t at = row * problem_.batch + i;
      const double norm = block.centres.norms[row];
      const double product = block.products[at];
      const double shift = static_cast<double>(statistics[3 * i + 2]) - statistics[3 * i];
      const double of_logit = of_statistics[3 * i + 1] * std::exp(shift) + of_statistics[3 * i + 2];
      const double gradient = of_logit * problem_.margin.slope(product / norm) / norm;
      along[row] += static_cast<float>((gradient - gradients[at]) * product);
      gradients[at] = static_cast<float>(gradient);
    });
    for (int64_t r = 0; r < block.count; ++r) {
      const float norm = block.centres.norms[r];
      along[r] = norm > kLeastNorm ? along[r] / (norm * norm) : 0.0f;
    }
  }

  void multiply(const HeadBlock& block, const KernelArguments& a, int part, std::byte* own) {
    auto* gradients = booked<float>(own, gradients_);
    const int64_t used = block.count * problem_.batch;
    std::fill(gradients + used, gradients + problem_.block_elements(), 0.0f);
    const void* operand = gradients;
    if (maker_.operand() == DataType::bf16) {
      floats_to_bf16(gradients, problem_.block_elements(), booked<uint16_t>(own, operands_));
      operand = own + operands_;
    }
    to_embeddings_.run(part, operand, block.centres.operand, booked<float>(own, of_embeddings_),
                       own + scratchpad_);
    to_centres_.run(part, operand, a.workspace + packed_, booked<float>(own, of_centres_),
                    own + scratchpad_);
  }

  void step(const HeadBlock& block, const CentreRows& centres, const RowUpdate& update,
            const KernelArguments& a, std::byte* own) const {
    const auto* along = booked<float>(own, along_);
    for (int64_t r = 0; r < block.count; ++r) {
      const int64_t number = block.classes[r];
      std::byte* states[2] = {};
      for (size_t i = 0; i < update.state_count(); ++i) {
        const CentreRows state = {a.inputs[6 + i], problem_.storage, problem_.dimension};
        states[i] = state.row(number);
        if (r + kRowsAhead < block.count) {
          prefetch_row(state.row(block.classes[r + kRowsAhead]), state.row_bytes());
        }
      }
      update.apply(booked<float>(own, of_centres_) + r * problem_.dimension, along[r],
                   problem_.range.begin + number, centres.row(number), states,
                   booked<float>(own, scratch_));
    }
  }

  void add_parts(const KernelArguments& a) const {
    auto* sum = a.output<float>(0);
    const float factor = problem_.embedding_share * a.step->loss_scale;
    std::memset(sum, 0, embedding_bytes());
    for (int part = 0; part < problem_.parts; ++part) {
      const auto* share = booked<float>(part_of(a, part), of_embeddings_);
      for (int64_t i = 0; i < problem_.batch * problem_.dimension; ++i) {
        sum[i] += share[i] * factor;
      }
    }
  }

  const HeadProblem problem_;
  const RowUpdate update_;
  ProductMaker maker_;
  BlockMatmul to_embeddings_;
  BlockMatmul to_centres_;
  PartedWorkspace memory_;
  uint64_t packed_ = 0, maximum_ = 0, weight_ = 0;
  uint64_t gradients_ = 0, operands_ = 0, along_ = 0, scratch_ = 0;
  uint64_t of_embeddings_ = 0, of_centres_ = 0, scratchpad_ = 0;
};

}  // namespace

std::unique_ptr<Kernel> make_head_update(const KernelRequest& request, std::string*) {
  const HeadProblem problem = head_problem_of(request, 2, 5, request.inputs[4].type);
  return std::make_unique<UpdateKernel>(
      problem,
      row_update_of(request.op.type, request.op.attributes, problem.storage, problem.dimension));
}

}  // namespace millrace
