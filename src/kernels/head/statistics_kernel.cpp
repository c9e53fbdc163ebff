#include <cmath>

#include "kernels/head/changed_others.h"
#include "kernels/head/head_kernels.h"
#include "kernels/head/product_maker.h"
#include "kernels/head/softmax_block.h"

namespace millrace::kernels {
namespace {

// The logit of a class that does not count. Infinities would have differences that are no numbers.
constexpr float kExcluded = -1e30f;

class StatisticsKernel final : public Kernel {
 public:
  StatisticsKernel(const HeadProblem& problem, const std::optional<LateRows>& late)
      : problem_(problem), late_(late), maker_(problem_) {
    WorkspaceBook shared;
    maker_.book_shared(shared);
    if (late_) pauses_ = shared.book(LateRows::workspace_bytes());
    WorkspaceBook part;
    maker_.book_part(part);
    maximum_ = part.floats(problem.batch);
    target_ = part.floats(problem.batch);
    plain_ = part.floats(problem.batch);
    product_ = part.floats(problem.batch);
    scratch_ = part.floats(problem.batch);
    sum_ = part.book(static_cast<uint64_t>(problem.batch) * sizeof(double));
    if (problem.changes_others()) others_.book(problem, shared, part);
    memory_ = {shared.size(), part.size(), problem.parts};
  }

  uint64_t workspace_bytes() const override { return memory_.size(); }

  void run(const KernelArguments& a) override {
    const ClassSample sample(a.input<int32_t>(1), problem_.range, problem_.batch,
                             problem_.sample_rate);
    const CentreRows centres = {a.inputs[2], problem_.storage, problem_.dimension};
    std::optional<LateRows> late;
    if (late_) late = late_->begin(a, a.workspace + pauses_);
    const ProductMaker::Job job = {
        sample, centres,     problem_.blocks(sample.count()), a.output<float>(1),
        false,  a.workspace, late ? &*late : nullptr};
    maker_.pack(a.input<float>(0), a.workspace, part_of(a, 0));
    const auto* margins = has_margins() ? a.input<graph::SampleMargin>(3) : nullptr;
    if (problem_.changes_others()) others_.begin(problem_, margins, a.workspace);
    each_part(problem_, job.blocks, [&](int part, int64_t first, int64_t last) {
      std::byte* own = part_of(a, part);
      start(sums_in(own), problem_.batch);
      std::fill_n(booked<float>(own, target_), problem_.batch, graph::kElsewhere);
      for (int64_t number = first; number < last; ++number) {
        const HeadBlock block = maker_.make(job, number, part, own);
        measure(block, job, a.input<float>(0), margins, own);
        add(block, sample, a.workspace, own);
      }
    });
    for (int64_t i = 0; i < problem_.batch; ++i) {
      a.output<graph::HeadStatistics>(0)[i] = gather(a, i);
      a.output<graph::HeadStatistics>(0)[i].margin =
          margins == nullptr ? graph::SampleMargin{} : margins[i];
    }
  }

 private:
  std::byte* part_of(const KernelArguments& a, int part) const {
    return memory_.of_part(a.workspace, part);
  }
  bool has_margins() const { return problem_.margin.kind != graph::HeadMargin::fixed; }
  RunningSums sums_in(std::byte* own) const {
    return {booked<float>(own, maximum_), booked<double>(own, sum_), booked<float>(own, scratch_)};
  }

  // The logits of the samples whose class is in the block, with the margin and without.
  void measure(const HeadBlock& block, const ProductMaker::Job& job, const float* embeddings,
               const graph::SampleMargin* margins, std::byte* own) const {
    each_target(problem_, job.sample, block, [&](int64_t i, int64_t row) {
      const float* centre = maker_.values(job, block.classes[row], own);
      const Target target =
          measure_target(embeddings + i * problem_.dimension, centre, problem_.dimension);
      const Margin margin = margins == nullptr ? problem_.margin : problem_.margin.of(margins[i]);
      booked<float>(own, target_)[i] = static_cast<float>(margin.logit(target));
      booked<float>(own, plain_)[i] = static_cast<float>(problem_.margin.scale * target.cosine);
    });
  }

  // Sums up the classes that are not a sample's own.
  void add(const HeadBlock& block, const ClassSample& sample, std::byte* shared,
           std::byte* own) const {
    auto* product = booked<float>(own, product_);
    const auto at = [&](int64_t i, int64_t row) -> float& {
      return block.products[row * problem_.batch + i];
    };
    each_target(problem_, sample, block, [&](int64_t i, int64_t row) {
      product[i] = at(i, row);
      at(i, row) = kExcluded / block.factors[row];
    });
    const ProductBlock plain = {block.products, block.factors, block.count, problem_.batch};
    add_block(problem_.changes_others() ? others_.changed(plain, shared, own) : plain,
              sums_in(own));
    each_target(problem_, sample, block, [&](int64_t i, int64_t row) { at(i, row) = product[i]; });
  }

  graph::HeadStatistics gather(const KernelArguments& a, int64_t i) const {
    graph::HeadStatistics row = {graph::kElsewhere, 0, graph::kElsewhere, graph::kElsewhere, {}};
    for (int part = 0; part < problem_.parts; ++part) {
      std::byte* own = part_of(a, part);
      row.maximum = std::max(row.maximum, booked<float>(own, maximum_)[i]);
      if (booked<float>(own, target_)[i] == graph::kElsewhere) continue;
      row.target = booked<float>(own, target_)[i];
      row.plain = booked<float>(own, plain_)[i];
    }
    double sum = 0;
    for (int part = 0; part < problem_.parts; ++part) {
      const double own = booked<double>(part_of(a, part), sum_)[i];
      const double shift = booked<float>(part_of(a, part), maximum_)[i] - row.maximum;
      if (own != 0) sum += own * std::exp(shift);
    }
    row.sum = static_cast<float>(sum);
    const bool has_others = row.maximum > kExcluded / 2 || std::isnan(row.sum);
    return has_others ? row : graph::HeadStatistics{0, 0, row.target, row.plain, {}};
  }

  const HeadProblem problem_;
  const std::optional<LateRows> late_;
  ProductMaker maker_;
  ChangedOthers others_;
  PartedWorkspace memory_;
  uint64_t maximum_ = 0, target_ = 0, plain_ = 0, product_ = 0, scratch_ = 0, sum_ = 0, pauses_ = 0;
};

}  // namespace

std::unique_ptr<Kernel> make_head_statistics(const KernelRequest& request, std::string*) {
  const HeadProblem problem = head_problem_of(request, 0, 2, request.outputs[1].type);
  const size_t margins = problem.margin.kind == graph::HeadMargin::fixed ? 0 : 1;
  return std::make_unique<StatisticsKernel>(problem, LateRows::of(request, 2, margins));
}

}  // namespace millrace::kernels
