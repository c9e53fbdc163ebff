#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/half.h"
#include "kernels/head/head_kernels.h"
#include "kernels/head/product_maker.h"
#include "kernels/head/row_update.h"
#include "kernels/head/softmax_block.h"
#include "kernels/support/function_kernel.h"
#include "kernels/support/update_inputs.h"

namespace millrace {
namespace {

constexpr int64_t kStateRowsAhead = 2;

// What of the backward half is done at once; the rest has its own operator.
struct UpdateWork {
  bool embeddings = true;  // their gradient
  bool centres = true;     // their step
  bool squares = false;    // the sum of squares of the centres' gradient
  bool kept = true;        // products are there, as input 4
  UpdateInputs inputs = {};

  size_t centre_input() const { return kept ? 5 : 4; }
};

class UpdateKernel final : public Kernel {
 public:
  UpdateKernel(const HeadProblem& problem, const RowUpdate& update, const UpdateWork& work)
      : problem_(problem),
        update_(update),
        work_(work),
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
    squares_ = part.book(sizeof(double));
    scratchpad_ =
        part.book(std::max(to_embeddings_.scratchpad_bytes(), to_centres_.scratchpad_bytes()));
    memory_ = {shared.size(), part.size(), problem.parts};
  }

  uint64_t workspace_bytes() const override { return memory_.size(); }

  void run(const KernelArguments& a) override {
    const Sample sample(a.input<int32_t>(3), problem_.range, problem_.batch, problem_.sample_rate);
    if (work_.inputs.skips(a)) return;
    const CentreRows centres = {a.inputs[work_.centre_input()], problem_.storage,
                                problem_.dimension};
    const ProductMaker::Job job = {sample,
                                   centres,
                                   problem_.blocks(sample.count()),
                                   work_.kept ? a.input<float>(4) : nullptr,
                                   work_.kept,
                                   a.workspace};
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
      *booked<double>(own, squares_) = 0;
      for (int64_t number = first; number < last; ++number) {
        const HeadBlock block = maker_.make(job, number, part, own);
        differentiate(block, sample, a, own);
        multiply(block, a, part, own);
        if (work_.squares) measure(block, centres, own);
        if (work_.centres) step(block, centres, update, a, own);
      }
    });
    if (work_.embeddings) add_parts(a);
    if (work_.squares) add_squares(a);
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
    if (!work_.inputs.has_clip) return;
    const float clip = work_.inputs.scale(a) * a.step->loss_scale;  // they are not scaled
    for (int64_t r = 0; r < block.count; ++r) along[r] *= clip;
    for (int64_t i = 0; i < block.count * problem_.batch; ++i) gradients[i] *= clip;
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
    if (work_.embeddings) {
      to_embeddings_.run(part, operand, block.centres.operand, booked<float>(own, of_embeddings_),
                         own + scratchpad_);
    }
    if (!work_.centres && !work_.squares) return;
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
        const CentreRows state = {a.inputs[work_.centre_input() + 1 + i], problem_.storage,
                                  problem_.dimension};
        states[i] = state.row(number);
        if (r + kStateRowsAhead < block.count) {
          prefetch_row(state.row(block.classes[r + kStateRowsAhead]), state.row_bytes());
        }
      }
      update.apply(booked<float>(own, of_centres_) + r * problem_.dimension, along[r],
                   problem_.range.begin + number, centres.row(number), states,
                   booked<float>(own, scratch_));
    }
  }

  // Adds the squares of the block's gradients as the step would take them.
  void measure(const HeadBlock& block, const CentreRows& centres, std::byte* own) const {
    const auto* along = booked<float>(own, along_);
    auto* centre = booked<float>(own, scratch_);
    for (int64_t r = 0; r < block.count; ++r) {
      auto* gradient = booked<float>(own, of_centres_) + r * problem_.dimension;
      load_row(problem_.storage, centres.row(block.classes[r]), problem_.dimension, centre);
      for (int64_t i = 0; i < problem_.dimension; ++i) gradient[i] -= along[r] * centre[i];
      *booked<double>(own, squares_) += sum_of_squares(gradient, problem_.dimension);
    }
  }

  // Other gradients carry the loss scale.
  void add_squares(const KernelArguments& a) const {
    double sum = 0;
    for (int part = 0; part < problem_.parts; ++part) {
      sum += *booked<double>(part_of(a, part), squares_);
    }
    const double scale = a.step->loss_scale;
    a.output<float>(0)[0] = static_cast<float>(sum * scale * scale);
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
  const UpdateWork work_;
  ProductMaker maker_;
  BlockMatmul to_embeddings_;
  BlockMatmul to_centres_;
  PartedWorkspace memory_;
  uint64_t packed_ = 0, maximum_ = 0, weight_ = 0;
  uint64_t gradients_ = 0, operands_ = 0, along_ = 0, scratch_ = 0;
  uint64_t of_embeddings_ = 0, of_centres_ = 0, squares_ = 0, scratchpad_ = 0;
};

}  // namespace

std::unique_ptr<Kernel> make_head_update(const KernelRequest& request, std::string*) {
  const std::string_view type = request.op.type;
  UpdateWork work;
  if (type == "margin_head_gradient") {
    work.centres = false;
  } else if (type == "margin_head_squares") {
    work = {.embeddings = false, .centres = false, .squares = true, .kept = false};
  } else if (type.starts_with("margin_head_step")) {
    work.embeddings = false;
    work.kept = false;
    work.inputs = UpdateInputs::of(request);
  }
  const TensorType products = work.kept ? request.inputs[4].type : TensorType{{0}, DataType::f32};
  const HeadProblem problem = head_problem_of(request, 2, work.centre_input(), products);
  return std::make_unique<UpdateKernel>(
      problem, row_update_of(type, request.op.attributes, problem.storage, problem.dimension),
      work);
}

// Copies a micro-batch's rows to their place among those of the step. The classes in use are the
// same for all micro-batches.
std::unique_ptr<Kernel> make_head_keep(const KernelRequest& request, std::string*) {
  const int64_t rows = request.inputs[4].type.shape.at(0);
  const int64_t all = request.inputs[0].type.shape.at(0);
  const int64_t dimension = request.inputs[6].type.shape.at(1);
  return make_function_kernel([=](const KernelArguments& a) {
    const int64_t first = a.step->micro_batch * rows;
    const int64_t widths[] = {3, 3, dimension};
    for (size_t i = 0; i < 3; ++i) {
      std::memcpy(a.input<float>(i) + first * widths[i], a.input<float>(4 + i),
                  static_cast<size_t>(rows * widths[i]) * sizeof(float));
    }
    const auto* sample = a.input<int32_t>(7);
    auto* kept = a.input<int32_t>(3);
    constexpr int64_t kHeader = 4;
    if (first == 0) {
      std::copy_n(sample, kHeader, kept);
      std::copy_n(sample + kHeader + rows, rows, kept + kHeader + all);  // the batch's classes
    }
    std::copy_n(sample + kHeader, rows, kept + kHeader + first);
  });
}

}  // namespace millrace
