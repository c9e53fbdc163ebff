// Naive kernels: what every other implementation is compared with. Plain layouts only, loops
// that read like the definition, sums in double; never chosen while anything else serves.
// All have the signature of KernelImplementation::create.
#pragma once

#include <memory>
#include <string>

#include "kernels/kernel.h"

namespace millrace::kernels {

std::unique_ptr<Kernel> reference_convolution(const KernelRequest&, std::string*);
std::unique_ptr<Kernel> reference_convolution_backward_data(const KernelRequest&, std::string*);
std::unique_ptr<Kernel> reference_convolution_backward_weights(const KernelRequest&, std::string*);

std::unique_ptr<Kernel> reference_linear(const KernelRequest&, std::string*);
std::unique_ptr<Kernel> reference_linear_backward_data(const KernelRequest&, std::string*);
std::unique_ptr<Kernel> reference_linear_backward_weights(const KernelRequest&, std::string*);

std::unique_ptr<Kernel> reference_max_pool(const KernelRequest&, std::string*);
std::unique_ptr<Kernel> reference_max_pool_backward(const KernelRequest&, std::string*);
std::unique_ptr<Kernel> reference_average_pool(const KernelRequest&, std::string*);
std::unique_ptr<Kernel> reference_average_pool_backward(const KernelRequest&, std::string*);
std::unique_ptr<Kernel> reference_global_average_pool(const KernelRequest&, std::string*);
std::unique_ptr<Kernel> reference_global_average_pool_backward(const KernelRequest&, std::string*);
std::unique_ptr<Kernel> reference_adaptive_average_pool(const KernelRequest&, std::string*);
std::unique_ptr<Kernel> reference_adaptive_average_pool_backward(const KernelRequest&,
                                                                 std::string*);

std::unique_ptr<Kernel> reference_batch_norm(const KernelRequest&, std::string*);
std::unique_ptr<Kernel> reference_batch_norm_apply(const KernelRequest&, std::string*);
std::unique_ptr<Kernel> reference_batch_norm_backward(const KernelRequest&, std::string*);

std::unique_ptr<Kernel> reference_normalised_convolution(const KernelRequest&, std::string*);

std::unique_ptr<Kernel> reference_head_statistics(const KernelRequest&, std::string*);
std::unique_ptr<Kernel> reference_head_update(const KernelRequest&, std::string*);

std::unique_ptr<Kernel> reference_update(const KernelRequest&, std::string*);
std::unique_ptr<Kernel> reference_sum_of_squares(const KernelRequest&, std::string*);
std::unique_ptr<Kernel> reference_squares_of_each(const KernelRequest&, std::string*);
std::unique_ptr<Kernel> reference_clip_scale(const KernelRequest&, std::string*);

}  // namespace millrace::kernels
