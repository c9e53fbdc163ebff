#include "base/parallel.h"
#include "kernels/support/function_kernel.h"
#include "kernels/support/request_checks.h"
#include "kernels/support/softmax_rows.h"
#include "kernels/support/vectorize.h"

namespace millrace::kernels::accuracy {
namespace {

std::unique_ptr<Kernel> make_top_k(const KernelRequest& request, std::string* refusal) {
  if (!is_plain(request, refusal)) return nullptr;
  const int64_t rows = request.inputs[0].type.shape.at(0);
  const auto classes = static_cast<int32_t>(request.inputs[0].type.shape.at(1));
  const int64_t k = request.op.attributes.integer("k");
  const auto run = [=](const KernelArguments& arguments) {
    const auto* logits = arguments.input<float>(0);
    const auto* labels = arguments.input<int32_t>(1);
    auto* hits = reinterpret_cast<uint8_t*>(arguments.workspace);
    parallel_ranges(rows, kElementwiseGrain / classes, [=](int, int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        const float* row = logits + n * classes;
        const int32_t label = labels[n];
        const bool known = label >= 0 && label < classes && row[label] == row[label];
        hits[n] = known && rank_in_row(row, classes, label, row[label]) < k;
      }
    });
    int64_t count = 0;
    for (int64_t n = 0; n < rows; ++n) count += hits[n];
    arguments.output<float>(0)[0] = static_cast<float>(count);
  };
  return make_function_kernel(run, static_cast<uint64_t>(rows));
}

std::unique_ptr<Kernel> reference_top_k(const KernelRequest& request, std::string* refusal) {
  if (!is_plain(request, refusal)) return nullptr;
  const int64_t rows = request.inputs[0].type.shape.at(0);
  const int64_t classes = request.inputs[0].type.shape.at(1);
  const int64_t k = request.op.attributes.integer("k");
  return make_function_kernel([=](const KernelArguments& arguments) {
    float count = 0;
    for (int64_t n = 0; n < rows; ++n) {
      const float* row = arguments.input<float>(0) + n * classes;
      const int64_t label = arguments.input<int32_t>(1)[n];
      if (label < 0 || label >= classes || row[label] != row[label]) continue;
      int64_t better = 0;
      for (int64_t c = 0; c < classes; ++c) {
        if (row[c] > row[label] || (row[c] == row[label] && c < label)) ++better;
      }
      if (better < k) ++count;
    }
    arguments.output<float>(0)[0] = count;
  });
}

}  // namespace

std::vector<KernelFamily> kernels() {
  return {{"top_k", {{"vector", make_top_k}, {"reference", reference_top_k}}}};
}

}  // namespace millrace::kernels::accuracy
