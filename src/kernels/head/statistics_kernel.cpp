#include <cmath>
#include <limits>

#include "kernels/head/head_kernels.h"
#include "kernels/head/product_maker.h"
#include "kernels/head/softmax_block.h"

namespace millrace {
namespace {

constexpr float kNowhere = -std::numeric_limits<float>::infinity();

class StatisticsKernel final : public Kernel {
 public:
  explicit StatisticsKernel(const HeadProblem& problem) : problem_(problem), maker_(problem_) {
    WorkspaceBook shared;
    maker_.book_shared(shared);
    WorkspaceBook part;
    maker_.book_part(part);
    maximum_ = part.floats(problem.batch);
    target_ = part.floats(problem.batch);
    product_ = part.floats(problem.batch);
    scratch_ = part.floats(problem.batch);
    sum_ = part.book(static_cast<uint64_t>(problem.batch) * sizeof(double));
    memory_ = {shared.size(), part.size(), problem.parts};
  }

  uint64_t workspace_bytes() const override { return memory_.size(); }

  void run(const KernelArguments& a) override {
    const Sample sample(a.input<int32_t>(1), problem_.range, problem_.batch, problem_.sample_rate);
    const CentreRows centres = {a.inputs[2], problem_.storage, problem_.dimension};
    const ProductMaker::Job job = {
        sample, centres, problem_.blocks(sample.count()), a.output<float>(1), false, a.workspace};
    maker_.pack(a.input<float>(0), a.workspace, part_of(a, 0));
    each_part(problem_, job.blocks, [&](int part, int64_t first, int64_t last) {
      std::byte* own = part_of(a, part);
      start(sums_in(own), problem_.batch);
      std::fill_n(booked<float>(own, target_), problem_.batch, kNowhere);
      for (int64_t number = first; number < last; ++number) {
        add(maker_.make(job, number, part, own), sample, own);
      }
    });
    for (int64_t i = 0; i < problem_.batch; ++i) gather(a, i, a.output<float>(0) + 3 * i);
  }

 private:
  std::byte* part_of(const KernelArguments& a, int part) const {
    return memory_.of_part(a.workspace, part);
  }
  RunningSums sums_in(std::byte* own) const {
    return {booked<float>(own, maximum_), booked<double>(own, sum_), booked<float>(own, scratch_)};
  }

  // While a block is summed up, a target's product is the one that gives its logit with margin.
  void add(const HeadBlock& block, const Sample& sample, std::byte* own) const {
    auto* target = booked<float>(own, target_);
    auto* product = booked<float>(own, product_);
    const auto at = [&](int64_t i, int64_t row) -> float& {
      return block.products[row * problem_.batch + i];
    };
    each_target(problem_, sample, block, [&](int64_t i, int64_t row) {
      product[i] = at(i, row);
      target[i] = static_cast<float>(
          problem_.margin.logit(product[i] / static_cast<double>(block.centres.norms[row])));
      at(i, row) = target[i] / block.factors[row];
    });
    add_block({block.products, block.factors, block.count, problem_.batch}, sums_in(own));
    each_target(problem_, sample, block, [&](int64_t i, int64_t row) { at(i, row) = product[i]; });
  }

  void gather(const KernelArguments& a, int64_t i, float* row) const {
    float maximum = kNowhere;
    float target = kNowhere;
    for (int part = 0; part < problem_.parts; ++part) {
      maximum = std::max(maximum, booked<float>(part_of(a, part), maximum_)[i]);
      const float found = booked<float>(part_of(a, part), target_)[i];
      if (found != kNowhere) target = found;
    }
    double sum = 0;
    for (int part = 0; part < problem_.parts; ++part) {
      const double own = booked<double>(part_of(a, part), sum_)[i];
      const double shift = booked<float>(part_of(a, part), maximum_)[i] - maximum;
      if (own != 0) sum += own * std::exp(shift);
    }
    row[0] = maximum;
    row[1] = static_cast<float>(sum);
    row[2] = target;
  }

  const HeadProblem problem_;
  ProductMaker maker_;
  PartedWorkspace memory_;
  uint64_t maximum_ = 0, target_ = 0, product_ = 0, scratch_ = 0, sum_ = 0;
};

}  // namespace

std::unique_ptr<Kernel> make_head_statistics(const KernelRequest& request, std::string*) {
  return std::make_unique<StatisticsKernel>(
      head_problem_of(request, 0, 2, request.outputs[1].type));
}

}  // namespace millrace
