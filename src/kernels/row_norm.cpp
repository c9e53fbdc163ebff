// The length of each row of a matrix.
#include <cmath>

#include "base/parallel.h"
#include "kernels/support/function_kernel.h"
#include "kernels/support/request_checks.h"

namespace millrace::kernels::row_norm {
namespace {

constexpr int64_t kRowGrain = 16;

std::unique_ptr<Kernel> make_row_norm(const KernelRequest& request, std::string* refusal) {
  if (!is_plain(request, refusal)) return nullptr;
  const int64_t rows = request.inputs[0].type.shape.at(0);
  const int64_t width = request.inputs[0].type.shape.at(1);
  return make_function_kernel([=](const KernelArguments& a) {
    parallel_for(rows, kRowGrain, [&](int64_t n) {
      const float* row = a.input<float>(0) + n * width;
      double squares = 0;
      for (int64_t i = 0; i < width; ++i) squares += static_cast<double>(row[i]) * row[i];
      a.output<float>(0)[n] = static_cast<float>(std::sqrt(squares));
    });
  });
}

// A row of length nothing has no direction.
std::unique_ptr<Kernel> make_row_norm_backward(const KernelRequest& request, std::string* refusal) {
  if (!is_plain(request, refusal)) return nullptr;
  const int64_t rows = request.inputs[1].type.shape.at(0);
  const int64_t width = request.inputs[1].type.shape.at(1);
  return make_function_kernel([=](const KernelArguments& a) {
    parallel_for(rows, kRowGrain, [&](int64_t n) {
      const float norm = a.input<float>(2)[n];
      const float factor = norm > 0 ? a.input<float>(0)[n] / norm : 0.0f;
      for (int64_t i = n * width; i < (n + 1) * width; ++i) {
        a.output<float>(0)[i] = a.input<float>(1)[i] * factor;
      }
    });
  });
}

}  // namespace

std::vector<KernelFamily> kernels() {
  return {{"row_norm", {{"rows", make_row_norm, true}}},
          {"row_norm_backward", {{"rows", make_row_norm_backward, true}}}};
}

}  // namespace millrace::kernels::row_norm
