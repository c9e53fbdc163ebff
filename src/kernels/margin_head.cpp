// The margin head: which classes a step uses, the statistics of their logits, the loss, and the
// step of the centres. See docs/faces.md for what is computed and head/ for the parts.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/head/head_kernels.h"
#include "kernels/head/sampling.h"
#include "kernels/reference/reference.h"
#include "kernels/support/function_kernel.h"
#include "kernels/support/request_checks.h"

namespace millrace::kernels::margin_head {
namespace {

std::unique_ptr<Kernel> make_sample(const KernelRequest& request, std::string*) {
  const graph::ClassRange range = graph::class_range_of(request.op.attributes);
  const double rate = request.op.attributes.number("sample_rate");
  const auto batch = static_cast<size_t>(request.inputs[0].elements());
  const size_t last = request.inputs.size() - 1;
  const auto all = static_cast<size_t>(request.inputs[last].elements());
  return make_function_kernel([=](const KernelArguments& a) {
    draw_sample(range, rate, {a.input<int32_t>(0), batch}, {a.input<int32_t>(last), all},
                a.step->seed, a.step->step, a.output<int32_t>(0));
  });
}

// The number of samples of which the loss is the mean, if not those of these rows.
double samples_of(const KernelRequest& request, int64_t batch) {
  const graph::Attributes& attributes = request.op.attributes;
  return static_cast<double>(attributes.has("samples") ? attributes.integer("samples") : batch);
}

struct RowSoftmax {
  float logarithm;  // of the sum
  float others;     // probability of all classes but the sample's own
};

// The parts' rows follow each other, all samples of one before those of the next. The terms of a
// sample's own class and of all others are summed apart, so that neither the loss nor the
// probability of the others loses digits as it comes close to nothing.
std::unique_ptr<Kernel> make_loss(const KernelRequest& request, std::string*) {
  const int64_t batch = request.inputs[0].type.shape.at(0);
  const auto members = static_cast<double>(request.op.attributes.integer("members"));
  const double samples = samples_of(request, batch);
  const int64_t shards = request.inputs[1].type.shape.at(0) / batch;
  return make_function_kernel([=](const KernelArguments& a) {
    constexpr double kNone = -std::numeric_limits<double>::infinity();
    const auto* rows = a.input<graph::HeadStatistics>(1);
    double loss = 0;
    double hits = 0;
    for (int64_t i = 0; i < batch; ++i) {
      double maximum = kNone;
      double target = kNone;
      double plain = kNone;
      for (int64_t s = 0; s < shards; ++s) {
        const graph::HeadStatistics& row = rows[s * batch + i];
        if (row.sum != 0) maximum = std::max<double>(maximum, row.maximum);
        if (row.target != graph::kElsewhere) {
          target = row.target;
          loss += static_cast<double>(row.margin.penalty);
        }
        if (row.plain != graph::kElsewhere) plain = row.plain;
      }
      const double shift = std::max(maximum, target);
      double others = 0;
      for (int64_t s = 0; s < shards; ++s) {
        const graph::HeadStatistics& row = rows[s * batch + i];
        if (row.sum != 0) others += row.sum * std::exp(row.maximum - shift);
      }
      const double own = std::exp(target - shift);
      loss += target >= maximum ? std::log1p(others) : shift - target + std::log(others + own);
      hits += plain > maximum ? 1 : 0;
      a.output<RowSoftmax>(1)[i] = {static_cast<float>(shift + std::log(others + own)),
                                    static_cast<float>(others / (others + own))};
    }
    a.output<float>(0)[0] = static_cast<float>(loss / (samples * members));
    a.output<float>(2)[0] = static_cast<float>(hits / members);
  });
}

// The maximum is only a shift: the loss does not change with it. The loss scale ends here: what
// follows is in float32, and the head multiplies by it what it hands on to the embeddings.
std::unique_ptr<Kernel> make_loss_backward(const KernelRequest& request, std::string*) {
  const int64_t rows = request.inputs[1].type.shape.at(0);
  const int64_t batch = request.inputs[2].type.shape.at(0);
  const double samples = samples_of(request, batch);
  return make_function_kernel([=](const KernelArguments& a) {
    const auto* statistics = a.input<graph::HeadStatistics>(1);
    const auto* softmax = a.input<RowSoftmax>(2);
    auto* gradients = a.output<graph::HeadStatistics>(0);
    const double share = a.input<float>(0)[0] / (samples * a.step->loss_scale);
    for (int64_t r = 0; r < rows; ++r) {
      const graph::HeadStatistics& row = statistics[r];
      const double weight = std::exp(double{row.maximum} - softmax[r % batch].logarithm);
      const bool is_here = row.target != graph::kElsewhere;
      gradients[r] = {0,
                      row.sum == 0 ? 0.0f : static_cast<float>(weight * share),
                      is_here ? static_cast<float>(-share * softmax[r % batch].others) : 0.0f,
                      0,
                      {0, 0, is_here ? static_cast<float>(share) : 0.0f}};
    }
  });
}

template <auto make>
std::unique_ptr<Kernel> if_plain(const KernelRequest& request, std::string* refusal) {
  if (!is_plain(request, refusal)) return nullptr;
  return make(request, refusal);
}

KernelFamily update_family(std::string_view type) {
  return {
      type,
      {{"blocks", if_plain<make_head_update>, true}, {"reference", reference_head_update, true}}};
}

}  // namespace

std::vector<KernelFamily> kernels() {
  return {
      {"margin_head_sample", {{"permutation", if_plain<make_sample>, true}}},
      {"margin_head_statistics",
       {{"blocks", if_plain<make_head_statistics>, true},
        {"reference", reference_head_statistics, true}}},
      {"margin_head_cosines", {{"rows", if_plain<make_head_cosines>, true}}},
      {"margin_head_margins", {{"rows", if_plain<make_head_margins>, true}}},
      {"margin_head_running_margins", {{"rows", if_plain<make_head_margins>, true}}},
      {"margin_head_margins_backward", {{"rows", if_plain<make_head_margins_backward>, true}}},
      {"margin_head_margin_gradient", {{"rows", if_plain<make_head_margin_gradient>, true}}},
      {"margin_head_loss", {{"rows", if_plain<make_loss>, true}}},
      {"margin_head_loss_backward", {{"rows", if_plain<make_loss_backward>, true}}},
      update_family("margin_head_update"),
      update_family("margin_head_update_momentum"),
      update_family("margin_head_update_adamw"),
      {"margin_head_gradient", {{"blocks", if_plain<make_head_update>, true}}},
      {"margin_head_squares", {{"blocks", if_plain<make_head_update>, true}}},
      {"margin_head_keep", {{"rows", if_plain<make_head_keep>, true}}},
      {"margin_head_step", {{"blocks", if_plain<make_head_update>, true}}},
      {"margin_head_step_momentum", {{"blocks", if_plain<make_head_update>, true}}},
      {"margin_head_step_adamw", {{"blocks", if_plain<make_head_update>, true}}},
  };
}

}  // namespace millrace::kernels::margin_head
