#include "kernels/head/product_maker.h"

namespace millrace::kernels {

ProductMaker::ProductMaker(const HeadProblem& problem)
    : problem_(problem),
      operand_(operand_type(problem.storage)),
      matmul_({.m = problem.rows,
               .n = problem.batch,
               .k = problem.dimension,
               .type = operand_,
               .packed_b = true},
              problem.parts) {}

void ProductMaker::book_shared(WorkspaceBook& book) { packed_ = book.book(matmul_.packed_bytes()); }

void ProductMaker::book_part(WorkspaceBook& book) {
  classes_ = book.book(static_cast<uint64_t>(problem_.rows) * sizeof(int32_t));
  centres_ = book.book(
      static_cast<uint64_t>(problem_.rows * problem_.dimension * graph::size_of(operand_)));
  norms_ = book.floats(problem_.rows);
  factors_ = book.floats(problem_.rows);
  rows_ = book.floats(3 * problem_.dimension);
  products_ = book.floats(problem_.block_elements());
  scratchpad_ = book.book(matmul_.scratchpad_bytes());
}

void ProductMaker::pack(const float* embeddings, std::byte* shared, std::byte* part) {
  matmul_.pack(embeddings, true, part + scratchpad_, shared + packed_);
}

const float* ProductMaker::values(const Job& job, int64_t row, std::byte* part) const {
  auto* made = booked<float>(part, rows_);
  if (job.late == nullptr) return job.centres.values(row, made);
  load_row(problem_.storage, job.centres.row(row), problem_.dimension, made);
  job.late->catch_up(row, made, made + problem_.dimension);
  return made;
}

HeadBlock ProductMaker::make(const Job& job, int64_t number, int part_number, std::byte* part) {
  HeadBlock block;
  block.first = number * problem_.rows;
  block.count = std::min(problem_.rows, job.sample.count() - block.first);
  const std::span<int32_t> classes(booked<int32_t>(part, classes_),
                                   static_cast<size_t>(block.count));
  job.sample.list(block.first, classes);
  block.classes = classes.data();
  auto* norms = booked<float>(part, norms_);
  auto* factors = booked<float>(part, factors_);
  block.centres =
      load_block(job.centres, classes, job.sample.is_everything(), problem_.rows, operand_,
                 job.late, {part + centres_, norms, booked<float>(part, rows_)});
  const auto scale = static_cast<float>(problem_.margin.scale);
  for (int64_t r = 0; r < block.count; ++r) factors[r] = scale / norms[r];
  block.factors = factors;
  const int64_t slot = problem_.cache_slot(number, job.blocks);
  block.products =
      slot < 0 ? booked<float>(part, products_) : job.kept + slot * problem_.block_elements();
  if (slot < 0 || !job.known) {
    matmul_.run(part_number, block.centres.operand, job.shared + packed_, block.products,
                part + scratchpad_);
  }
  return block;
}

}  // namespace millrace::kernels
