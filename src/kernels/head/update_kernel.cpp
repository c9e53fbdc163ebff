#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/half.h"
#include "kernels/head/changed_others.h"
#include "kernels/head/head_kernels.h"
#include "kernels/head/product_maker.h"
#include "kernels/head/row_update.h"
#include "kernels/head/softmax_block.h"
#include "kernels/support/function_kernel.h"
#include "kernels/support/update_inputs.h"

namespace millrace::kernels {
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
  UpdateKernel(const HeadProblem& problem, const RowUpdate& update, const UpdateWork& work,
               const std::optional<LateRows>& late)
      : problem_(problem),
        update_(update),
        work_(work),
        late_(late),
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
    if (late_) pauses_ = shared.book(LateRows::workspace_bytes());
    packed_ = shared.book(to_centres_.packed_bytes());
    maximum_ = shared.floats(batch);
    weight_ = shared.floats(batch);
    WorkspaceBook part;
    maker_.book_part(part);
    gradients_ = part.floats(problem.block_elements());
    operands_ = part.floats(problem.block_elements());
    scratch_ = part.floats(update.scratch_elements());
    of_embeddings_ = part.floats(batch * dimension);
    of_centres_ = part.floats(problem.rows * dimension);
    squares_ = part.book(sizeof(double));
    if (problem.changes_others()) others_.book(problem, shared, part);
    scratchpad_ =
        part.book(std::max(to_embeddings_.scratchpad_bytes(), to_centres_.scratchpad_bytes()));
    memory_ = {shared.size(), part.size(), problem.parts};
  }

  uint64_t workspace_bytes() const override { return memory_.size(); }

  void run(const KernelArguments& a) override {
    const ClassSample sample(a.input<int32_t>(3), problem_.range, problem_.batch,
                             problem_.sample_rate);
    if (work_.inputs.skips(a)) return;
    const CentreRows centres = {a.inputs[work_.centre_input()], problem_.storage,
                                problem_.dimension};
    std::optional<LateRows> late;
    if (late_) late = late_->begin(a, a.workspace + pauses_);
    const ProductMaker::Job job = {sample,
                                   centres,
                                   problem_.blocks(sample.count()),
                                   work_.kept ? a.input<float>(4) : nullptr,
                                   work_.kept,
                                   a.workspace,
                                   late ? &*late : nullptr};
    const RowUpdate update = update_.at_step(*a.step);
    std::byte* first_part = part_of(a, 0);
    maker_.pack(a.input<float>(2), a.workspace, first_part);
    to_centres_.pack(a.input<float>(2), false, first_part + scratchpad_, a.workspace + packed_);
    for (int64_t i = 0; i < problem_.batch; ++i) {
      booked<float>(a.workspace, maximum_)[i] = a.input<graph::HeadStatistics>(1)[i].maximum;
      booked<float>(a.workspace, weight_)[i] = a.input<graph::HeadStatistics>(0)[i].sum;
    }
    if (problem_.changes_others()) {
      others_.begin(problem_, &a.input<graph::HeadStatistics>(1)->margin, a.workspace,
                    sizeof(graph::HeadStatistics));
    }
    each_part(problem_, job.blocks, [&](int part, int64_t first, int64_t last) {
      std::byte* own = part_of(a, part);
      std::memset(own + of_embeddings_, 0, embedding_bytes());
      *booked<double>(own, squares_) = 0;
      for (int64_t number = first; number < last; ++number) {
        const HeadBlock block = maker_.make(job, number, part, own);
        differentiate(block, sample, a, own);
        multiply(block, a, part, own);
        add_targets(block, job, a, own);
        if (work_.squares) measure(block, job, own);
        if (work_.centres) step(block, job, update, a, own);
      }
    });
    if (work_.centres && late) {
      late->clock().record(static_cast<float>(update_.rate_of(*a.step)), a.step->updates());
    }
    if (work_.embeddings) add_parts(a);
    if (work_.squares) add_squares(a);
  }

  void settle(const KernelArguments& a) override {
    if (!late_ || !work_.centres) return;
    const LateRows late = late_->begin(a, a.workspace + pauses_);
    const CentreRows centres = {a.inputs[work_.centre_input()], problem_.storage,
                                problem_.dimension};
    each_part(problem_, problem_.range.local, [&](int part, int64_t first, int64_t last) {
      for (int64_t place = first; place < last; ++place) {
        if (late.clock().missed(place) == 0) continue;
        update_.settle(row_of(a, centres, place), late, booked<float>(part_of(a, part), scratch_));
        late.clock().set_current(place, late.clock().now());
      }
    });
  }

 private:
  std::byte* part_of(const KernelArguments& a, int part) const {
    return memory_.of_part(a.workspace, part);
  }
  size_t embedding_bytes() const {
    return static_cast<size_t>(problem_.batch * problem_.dimension) * sizeof(float);
  }

  // Gradients that go on are those of the loss; only a step clips, and takes off the loss scale
  // that they do not carry.
  float clip_of(const KernelArguments& a) const {
    return work_.inputs.has_clip ? work_.inputs.scale(a) * a.step->loss_scale : 1.0f;
  }

  // The gradients of the block's products but for those of samples with their own class.
  void differentiate(const HeadBlock& block, const ClassSample& sample, const KernelArguments& a,
                     std::byte* own) const {
    auto* gradients = booked<float>(own, gradients_);
    const ProductBlock plain = {block.products, block.factors, block.count, problem_.batch};
    const LogitGradients logits = {booked<float>(a.workspace, maximum_),
                                   booked<float>(a.workspace, weight_)};
    if (problem_.changes_others()) {
      product_gradients(others_.changed(plain, a.workspace, own), logits, gradients);
      multiply_slopes(plain, others_.others(), gradients);
    } else {
      product_gradients(plain, logits, gradients);
    }
    each_target(problem_, sample, block,
                [&](int64_t i, int64_t row) { gradients[row * problem_.batch + i] = 0; });
    if (!work_.inputs.has_clip) return;
    const float clip = clip_of(a);
    for (int64_t i = 0; i < block.count * problem_.batch; ++i) gradients[i] *= clip;
  }

  // What samples and their own classes do to each other.
  void add_targets(const HeadBlock& block, const ProductMaker::Job& job, const KernelArguments& a,
                   std::byte* own) const {
    const int64_t width = problem_.dimension;
    const bool of_centres = work_.centres || work_.squares;
    each_target(problem_, job.sample, block, [&](int64_t i, int64_t row) {
      const float* embedding = a.input<float>(2) + i * width;
      const float* centre = maker_.values(job, block.classes[row], own);
      const Target target = measure_target(embedding, centre, width);
      const double of_logit = a.input<graph::HeadStatistics>(0)[i].target;
      const Margin margin = problem_.margin.of(a.input<graph::HeadStatistics>(1)[i].margin);
      const double of_cosine = of_logit * margin.slope(target) * clip_of(a);
      add_tangents(target, of_cosine, embedding, centre, width,
                   work_.embeddings ? booked<float>(own, of_embeddings_) + i * width : nullptr,
                   of_centres ? booked<float>(own, of_centres_) + row * width : nullptr);
    });
  }

  void multiply(const HeadBlock& block, const KernelArguments& a, int part, std::byte* own) {
    auto* gradients = booked<float>(own, gradients_);
    const int64_t used = block.count * problem_.batch;
    std::fill(gradients + used, gradients + problem_.block_elements(), 0.0f);
    const void* operand = gradients;
    if (maker_.operand() == graph::DataType::bf16) {
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

  RowUpdate::Row row_of(const KernelArguments& a, const CentreRows& centres, int64_t place) const {
    RowUpdate::Row row = {problem_.range.begin + place, place, centres.row(place), {}};
    for (size_t i = 0; i < update_.state_count(); ++i) {
      row.states[i] = a.inputs[work_.centre_input() + 1 + i] + place * centres.row_bytes();
    }
    return row;
  }

  void step(const HeadBlock& block, const ProductMaker::Job& job, const RowUpdate& update,
            const KernelArguments& a, std::byte* own) const {
    for (int64_t r = 0; r < block.count; ++r) {
      const RowUpdate::Row row = row_of(a, job.centres, block.classes[r]);
      if (r + kStateRowsAhead < block.count) {
        const RowUpdate::Row next = row_of(a, job.centres, block.classes[r + kStateRowsAhead]);
        for (size_t i = 0; i < update.state_count(); ++i) {
          prefetch_row(next.states[i], job.centres.row_bytes());
        }
      }
      update.apply(booked<float>(own, of_centres_) + r * problem_.dimension, block.centres.norms[r],
                   row, job.late, booked<float>(own, scratch_));
      if (job.late != nullptr) {
        job.late->clock().set_current(row.place, job.late->clock().now() + 1);
      }
    }
  }

  // Adds the squares of the block's gradients as the step would take them.
  void measure(const HeadBlock& block, const ProductMaker::Job& job, std::byte* own) const {
    for (int64_t r = 0; r < block.count; ++r) {
      auto* gradient = booked<float>(own, of_centres_) + r * problem_.dimension;
      const float* centre = maker_.values(job, block.classes[r], own);
      project(gradient, centre, block.centres.norms[r], problem_.dimension);
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
  const std::optional<LateRows> late_;
  ProductMaker maker_;
  BlockMatmul to_embeddings_;
  BlockMatmul to_centres_;
  ChangedOthers others_;
  PartedWorkspace memory_;
  uint64_t pauses_ = 0, packed_ = 0, maximum_ = 0, weight_ = 0;
  uint64_t gradients_ = 0, operands_ = 0, scratch_ = 0;
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
  const graph::TensorType products =
      work.kept ? request.inputs[4].type : graph::TensorType{{0}, graph::DataType::f32};
  const HeadProblem problem = head_problem_of(request, 2, work.centre_input(), products);
  return std::make_unique<UpdateKernel>(
      problem, row_update_of(type, request.op.attributes, problem.storage, problem.dimension), work,
      LateRows::of(request, work.centre_input()));
}

// Copies a micro-batch's rows to their place among those of the step. The classes in use are the
// same for all micro-batches, and so are the labels by which they were chosen.
std::unique_ptr<Kernel> make_head_keep(const KernelRequest& request, std::string*) {
  const int64_t rows = request.inputs[4].type.shape.at(0);
  const int64_t all = request.inputs[0].type.shape.at(0);
  const int64_t dimension = request.inputs[6].type.shape.at(1);
  const int64_t labels = request.inputs[7].type.elements() - graph::sample_elements(rows, 0);
  return make_function_kernel([=](const KernelArguments& a) {
    const int64_t first = a.step->micro_batch * rows;
    const int64_t widths[] = {graph::kHeadStatistics, graph::kHeadStatistics, dimension};
    for (size_t i = 0; i < 3; ++i) {
      std::memcpy(a.input<float>(i) + first * widths[i], a.input<float>(4 + i),
                  static_cast<size_t>(rows * widths[i]) * sizeof(float));
    }
    const auto* sample = a.input<int32_t>(7);
    auto* kept = a.input<int32_t>(3);
    constexpr int64_t kHeader = 4;
    if (first == 0) {
      std::copy_n(sample, kHeader, kept);
      std::copy_n(sample + kHeader + rows, labels, kept + kHeader + all);
    }
    std::copy_n(sample + kHeader, rows, kept + kHeader + first);
  });
}

}  // namespace millrace::kernels
