// What every kernel of the margin head knows of its operator.
#pragma once

#include "graph/margin_head.h"
#include "kernels/head/margin.h"
#include "kernels/head/sampling.h"
#include "kernels/kernel.h"

namespace millrace::kernels {

struct HeadProblem {
  graph::ClassRange range;
  double sample_rate = 1;
  Margin margin;
  double filter = 0;  // cosine above which other classes count as at right angles; 0: none do
  float embedding_share = 1;  // of the embeddings' gradient, where several devices make the same
  int64_t batch = 0;
  int64_t dimension = 0;
  int64_t rows = 0;          // classes in a block
  int64_t cache_blocks = 0;  // blocks whose products are kept
  graph::DataType storage = graph::DataType::f32;
  int parts = 1;  // the work is cut into this many; one thread does each

  // Whether logits of other classes are more than scale times their cosines.
  bool changes_others() const { return filter > 0 || margin.kind == graph::HeadMargin::curriculum; }

  int64_t blocks(int64_t classes) const { return (classes + rows - 1) / rows; }
  int64_t block_elements() const { return rows * batch; }

  // Where among the kept products those of a block lie, or -1: they are spread evenly, so that
  // every part keeps the same share.
  int64_t cache_slot(int64_t block, int64_t count) const {
    if (cache_blocks >= count) return block;
    const int64_t slot = block * cache_blocks / count;
    return (block + 1) * cache_blocks / count > slot ? slot : -1;
  }
};

// `embeddings` and `centres` are the numbers of those inputs, `products` the type of the kept
// products.
HeadProblem head_problem_of(const KernelRequest& request, size_t embeddings, size_t centres,
                            const graph::TensorType& products);

}  // namespace millrace::kernels
