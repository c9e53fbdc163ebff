#include "bench/head_limit.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "base/median.h"
#include "base/parallel.h"
#include "kernels/head/block_matmul.h"

namespace millrace::bench {
namespace {

constexpr int kRounds = 5;

using Floats = std::vector<float>;

// What a thread multiplies.
struct Operands {
  Floats centres, products, of_embeddings, of_centres;
  std::vector<std::byte> scratchpad;
};

}  // namespace

double head_product_seconds(const HeadJob& job) {
  const int64_t batch = job.batch;
  const int64_t dimension = job.dimension;
  const int64_t rows = graph::head_block_rows(batch, dimension);
  const int64_t classes = graph::sampled_classes(job.head.sample_rate, job.head.classes);
  const graph::DataType type = kernels::operand_type(job.head.storage);
  kernels::BlockMatmul to_products(
      {.m = rows, .n = batch, .k = dimension, .type = type, .packed_b = true}, job.threads);
  kernels::BlockMatmul to_embeddings({.m = batch,
                                      .n = dimension,
                                      .k = rows,
                                      .type = type,
                                      .transposed_a = true,
                                      .accumulates = true},
                                     job.threads);
  kernels::BlockMatmul to_centres(
      {.m = rows, .n = dimension, .k = batch, .type = type, .packed_b = true}, job.threads);
  const uint64_t scratchpad =
      std::max({to_products.scratchpad_bytes(), to_embeddings.scratchpad_bytes(),
                to_centres.scratchpad_bytes()});
  std::vector<Operands> parts(static_cast<size_t>(job.threads));
  for (Operands& part : parts) {
    part = {Floats(static_cast<size_t>(rows * dimension)),
            Floats(static_cast<size_t>(rows * batch)),
            Floats(static_cast<size_t>(batch * dimension)),
            Floats(static_cast<size_t>(rows * dimension)), std::vector<std::byte>(scratchpad)};
  }
  const Floats embeddings(static_cast<size_t>(batch * dimension));
  std::vector<std::byte> forward(to_products.packed_bytes());
  std::vector<std::byte> backward(to_centres.packed_bytes());
  to_products.pack(embeddings.data(), true, parts[0].scratchpad.data(), forward.data());
  to_centres.pack(embeddings.data(), false, parts[0].scratchpad.data(), backward.data());
  const int64_t blocks = (classes + rows - 1) / rows;
  std::vector<double> seconds;
  for (int round = 0; round <= kRounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    parallel_for(job.threads, 1, [&](int64_t number) {
      const auto place = static_cast<int>(number);
      Operands& part = parts[static_cast<size_t>(number)];
      const int64_t first = blocks * number / job.threads;
      const int64_t last = blocks * (number + 1) / job.threads;
      for (int64_t block = first; block < last; ++block) {
        to_products.run(place, part.centres.data(), forward.data(), part.products.data(),
                        part.scratchpad.data());
        to_embeddings.run(place, part.products.data(), part.centres.data(),
                          part.of_embeddings.data(), part.scratchpad.data());
        to_centres.run(place, part.products.data(), backward.data(), part.of_centres.data(),
                       part.scratchpad.data());
      }
    });
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    if (round > 0) seconds.push_back(taken.count());
  }
  return median(seconds);
}

}  // namespace millrace::bench
