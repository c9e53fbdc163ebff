#include <cstring>

#include "base/parallel.h"
#include "base/parts.h"
#include "kernels/support/function_kernel.h"
#include "kernels/support/layout_rules.h"
#include "kernels/support/request_checks.h"
#include "kernels/support/vectorize.h"

namespace millrace::exchange {
namespace {

int ticket_of(const KernelRequest& request) {
  return static_cast<int>(request.op.attributes.integer("ticket"));
}

// Where an output has memory of its own, it starts as a copy of the input.
void pass_on(const KernelArguments& a, const std::vector<int64_t>& counts) {
  for (size_t i = 0; i < counts.size(); ++i) {
    if (a.inputs[i] == a.outputs[i]) continue;
    std::memcpy(a.outputs[i], a.inputs[i], static_cast<size_t>(counts[i]) * sizeof(float));
  }
}

std::vector<int64_t> counts_of(const KernelRequest& request) {
  std::vector<int64_t> counts;
  const auto tensors = static_cast<size_t>(request.op.attributes.integer("tensors"));
  for (size_t i = 0; i < tensors; ++i) counts.push_back(request.inputs[i].physical_elements());
  return counts;
}

// Sums several tensors by way of one buffer, or one tensor where it lies.
class Reduction final : public BackgroundWork {
 public:
  Reduction(std::vector<int64_t> counts, bool scatter, DataType wire)
      : counts_(std::move(counts)), tensors_(counts_.size()), scatter_(scatter), wire_(wire) {}

  const std::vector<int64_t>& counts() const { return counts_; }

  void bind(const KernelArguments& a) {
    for (size_t i = 0; i < tensors_.size(); ++i) tensors_[i] = a.output<float>(i);
    staging_ = a.outputs.size() > tensors_.size() ? a.output<float>(tensors_.size()) : nullptr;
  }

  void run(Collectives& collectives) override {
    if (staging_ == nullptr) {
      const std::span<float> whole(tensors_[0], static_cast<size_t>(counts_[0]));
      if (!scatter_) {
        collectives.all_reduce(whole, wire_);
        return;
      }
      const int64_t begin = part_begin(counts_[0], collectives.member(), collectives.members());
      const int64_t size = part_size(counts_[0], collectives.member(), collectives.members());
      collectives.reduce_scatter(
          whole, whole.subspan(static_cast<size_t>(begin), static_cast<size_t>(size)), 1, wire_);
      return;
    }
    int64_t total = 0;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      std::memcpy(staging_ + total, tensors_[i], static_cast<size_t>(counts_[i]) * sizeof(float));
      total += counts_[i];
    }
    collectives.all_reduce({staging_, static_cast<size_t>(total)}, wire_);
    total = 0;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      std::memcpy(tensors_[i], staging_ + total, static_cast<size_t>(counts_[i]) * sizeof(float));
      total += counts_[i];
    }
  }

 private:
  std::vector<int64_t> counts_;
  std::vector<float*> tensors_;
  float* staging_ = nullptr;
  bool scatter_;
  DataType wire_;
};

class ReductionStart final : public Kernel {
 public:
  explicit ReductionStart(const KernelRequest& request)
      : work_(counts_of(request), request.op.attributes.flag("scatter"),
              data_type_of(request.op.attributes.text("wire"))),
        ticket_(ticket_of(request)) {}

  void run(const KernelArguments& a) override {
    pass_on(a, work_.counts());
    work_.bind(a);
    a.collectives->post(ticket_, work_);
  }

 private:
  Reduction work_;
  int ticket_;
};

std::unique_ptr<Kernel> make_start(const KernelRequest& request, std::string* refusal) {
  const int64_t staging = request.op.attributes.integer("staging");
  int64_t total = 0;
  for (int64_t count : counts_of(request)) total += count;
  if (staging > 0 && staging < total) {
    *refusal = "the staging buffer is too small for the layouts in use";
    return nullptr;
  }
  return std::make_unique<ReductionStart>(request);
}

std::unique_ptr<Kernel> make_wait(const KernelRequest& request, std::string*) {
  return make_function_kernel(
      [ticket = ticket_of(request), counts = counts_of(request)](const KernelArguments& a) {
        a.collectives->wait(ticket);
        pass_on(a, counts);
      });
}

std::unique_ptr<Kernel> make_plain_wait(const KernelRequest& request, std::string*) {
  return make_function_kernel(
      [ticket = ticket_of(request)](const KernelArguments& a) { a.collectives->wait(ticket); });
}

// Every device has updated its part of the parameter; this brings the parts together.
class Gathering final : public Kernel, private BackgroundWork {
 public:
  explicit Gathering(const KernelRequest& request)
      : count_(request.inputs[0].physical_elements()), ticket_(ticket_of(request)) {}

  void run(const KernelArguments& a) override {
    parameter_ = a.inputs[0];
    a.collectives->post(ticket_, *this);
  }

 private:
  void run(Collectives& collectives) override {
    const int64_t begin = part_begin(count_, collectives.member(), collectives.members());
    const int64_t size = part_size(count_, collectives.member(), collectives.members());
    constexpr int64_t kItem = sizeof(float);
    collectives.all_gather({parameter_ + begin * kItem, static_cast<size_t>(size * kItem)},
                           {parameter_, static_cast<size_t>(count_ * kItem)}, kItem);
  }

  int64_t count_;
  int ticket_;
  std::byte* parameter_ = nullptr;
};

std::unique_ptr<Kernel> make_gather(const KernelRequest& request, std::string*) {
  return std::make_unique<Gathering>(request);
}

MILLRACE_VECTORIZED void add_to(float* sum, const float* values, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) sum[i] += values[i];
}

std::unique_ptr<Kernel> make_accumulate(const KernelRequest& request, std::string* refusal) {
  if (!is_uniform(request, refusal)) return nullptr;
  const int64_t count = request.inputs[0].physical_elements();
  return make_function_kernel([count](const KernelArguments& a) {
    auto* sum = a.input<float>(0);
    const auto* values = a.input<float>(1);
    const bool first = a.step->micro_batch == 0;
    parallel_ranges(count, kElementwiseGrain, [=](int, int64_t begin, int64_t end) {
      if (first) {
        std::memcpy(sum + begin, values + begin, static_cast<size_t>(end - begin) * sizeof(float));
      } else {
        add_to(sum + begin, values + begin, end - begin);
      }
    });
  });
}

LayoutWish follow_parameters(const KernelRequest& request) {
  const auto tensors = static_cast<size_t>(request.op.attributes.integer("tensors"));
  LayoutWish wish;
  for (size_t i = 0; i < 2 * tensors; ++i) {
    wish.inputs.push_back(request.inputs[tensors + i % tensors].layout);
  }
  wish.outputs.assign(wish.inputs.begin(), wish.inputs.begin() + static_cast<ptrdiff_t>(tensors));
  wish.outputs.resize(request.outputs.size());
  return wish;
}

LayoutWish keep(const KernelRequest& request) {
  LayoutWish wish;
  for (const TensorSpec& input : request.inputs) wish.inputs.push_back(input.layout);
  wish.outputs.assign(wish.inputs.begin(),
                      wish.inputs.begin() + static_cast<ptrdiff_t>(request.outputs.size()));
  return wish;
}

LayoutWish follow_parameter(const KernelRequest& request) { return follow_input(request, 2); }

}  // namespace

std::vector<KernelFamily> kernels() {
  return {{"gradient_reduce_start", {{"background", make_start, true}}, follow_parameters},
          {"gradient_reduce_wait", {{"background", make_wait, true}}, keep},
          {"parameter_gather_start", {{"background", make_gather, true}}, keep},
          {"exchange_wait", {{"background", make_plain_wait, true}}},
          {"accumulate", {{"vector", make_accumulate, true}}, follow_parameter}};
}

}  // namespace millrace::exchange
