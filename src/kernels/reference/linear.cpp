#include "kernels/reference/reference.h"
#include "kernels/support/function_kernel.h"
#include "kernels/support/request_checks.h"

namespace millrace::kernels {

std::unique_ptr<Kernel> reference_linear(const KernelRequest& request, std::string* refusal) {
  if (!is_plain(request, refusal)) return nullptr;
  const int64_t batch = request.inputs[0].type.shape.at(0);
  const int64_t inputs = request.inputs[0].type.shape.at(1);
  const int64_t outputs = request.inputs[1].type.shape.at(0);
  const bool bias = request.inputs.size() > 2;
  const bool relu = request.op.attributes.flag("relu");
  return make_function_kernel([=](const KernelArguments& a) {
    for (int64_t n = 0; n < batch; ++n) {
      for (int64_t o = 0; o < outputs; ++o) {
        double sum = bias ? a.input<float>(2)[o] : 0;
        for (int64_t i = 0; i < inputs; ++i) {
          sum += static_cast<double>(a.input<float>(0)[n * inputs + i]) *
                 a.input<float>(1)[o * inputs + i];
        }
        a.output<float>(0)[n * outputs + o] = static_cast<float>(relu && sum < 0 ? 0 : sum);
      }
    }
  });
}

std::unique_ptr<Kernel> reference_linear_backward_data(const KernelRequest& request,
                                                       std::string* refusal) {
  if (!is_plain(request, refusal)) return nullptr;
  const int64_t batch = request.inputs[0].type.shape.at(0);
  const int64_t outputs = request.inputs[1].type.shape.at(0);
  const int64_t inputs = request.inputs[1].type.shape.at(1);
  return make_function_kernel([=](const KernelArguments& a) {
    for (int64_t n = 0; n < batch; ++n) {
      for (int64_t i = 0; i < inputs; ++i) {
        double sum = 0;
        for (int64_t o = 0; o < outputs; ++o) {
          sum += static_cast<double>(a.input<float>(0)[n * outputs + o]) *
                 a.input<float>(1)[o * inputs + i];
        }
        a.output<float>(0)[n * inputs + i] = static_cast<float>(sum);
      }
    }
  });
}

std::unique_ptr<Kernel> reference_linear_backward_weights(const KernelRequest& request,
                                                          std::string* refusal) {
  if (!is_plain(request, refusal)) return nullptr;
  const int64_t batch = request.inputs[0].type.shape.at(0);
  const int64_t inputs = request.inputs[0].type.shape.at(1);
  const int64_t outputs = request.inputs[1].type.shape.at(1);
  const bool bias = request.outputs.size() > 1;
  return make_function_kernel([=](const KernelArguments& a) {
    for (int64_t o = 0; o < outputs; ++o) {
      for (int64_t i = 0; i < inputs; ++i) {
        double sum = 0;
        for (int64_t n = 0; n < batch; ++n) {
          sum += static_cast<double>(a.input<float>(0)[n * inputs + i]) *
                 a.input<float>(1)[n * outputs + o];
        }
        a.output<float>(0)[o * inputs + i] = static_cast<float>(sum);
      }
      if (!bias) continue;
      double sum = 0;
      for (int64_t n = 0; n < batch; ++n) sum += a.input<float>(1)[n * outputs + o];
      a.output<float>(1)[o] = static_cast<float>(sum);
    }
  });
}

}  // namespace millrace::kernels
