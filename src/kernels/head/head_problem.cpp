#include "kernels/head/head_problem.h"

#include <algorithm>

namespace millrace::kernels {

HeadProblem head_problem_of(const KernelRequest& request, size_t embeddings, size_t centres,
                            const graph::TensorType& products) {
  HeadProblem problem;
  problem.range = graph::class_range_of(request.op.attributes);
  problem.sample_rate = request.op.attributes.number("sample_rate");
  problem.embedding_share = static_cast<float>(request.op.attributes.number("embedding_share"));
  problem.margin = margin_of(request.op.attributes);
  problem.filter = request.op.attributes.number("filter");
  problem.batch = request.inputs[embeddings].type.shape.at(0);
  problem.dimension = request.inputs[embeddings].type.shape.at(1);
  problem.rows = graph::head_block_rows(problem.batch, problem.dimension);
  problem.cache_blocks = products.elements() / problem.block_elements();
  problem.storage = request.inputs[centres].type.dtype;
  problem.parts = std::max(1, request.options.threads);
  return problem;
}

}  // namespace millrace::kernels
