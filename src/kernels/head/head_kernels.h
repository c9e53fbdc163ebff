// The two heavy kernels of the margin head: both go through the classes in blocks that stay in a
// core's cache and hold no more than a block of logits per thread.
#pragma once

#include <memory>
#include <string>

#include "kernels/kernel.h"

namespace millrace::kernels {

// margin_head_statistics: products of a block, margin, running maximum and sum.
std::unique_ptr<Kernel> make_head_statistics(const KernelRequest& request, std::string* refusal);

// margin_head_update and its kinds: the products again (or as kept), their gradients, the
// embeddings' gradient, and the step of each centre of the block.
// margin_head_gradient does this without the step, margin_head_step the step alone, and
// margin_head_squares measures the gradient that the step would take.
std::unique_ptr<Kernel> make_head_update(const KernelRequest& request, std::string* refusal);

// margin_head_keep: what the step of the centres needs of each micro-batch.
std::unique_ptr<Kernel> make_head_keep(const KernelRequest& request, std::string* refusal);

// The cosine of each sample and its own centre.
std::unique_ptr<Kernel> make_head_cosines(const KernelRequest& request, std::string* refusal);
// Margins of samples from the lengths of their embeddings or those cosines, and their gradients.
std::unique_ptr<Kernel> make_head_margins(const KernelRequest& request, std::string* refusal);
std::unique_ptr<Kernel> make_head_margins_backward(const KernelRequest& request,
                                                   std::string* refusal);
std::unique_ptr<Kernel> make_head_margin_gradient(const KernelRequest& request,
                                                  std::string* refusal);

}  // namespace millrace::kernels
