#include <algorithm>
#include <cmath>

#include "kernels/reference/reference.h"
#include "kernels/support/function_kernel.h"
#include "kernels/support/request_checks.h"
#include "kernels/support/update_inputs.h"

namespace millrace::kernels {
namespace {

struct Update {
  int64_t count;
  double momentum, weight_decay;
  bool nesterov;
  UpdateInputs inputs;

  bool skips(const KernelArguments& a) const { return inputs.skips(a); }
  double scale(const KernelArguments& a) const { return inputs.scale(a); }
  double rate(const KernelArguments& a) const { return inputs.rate(a); }
};

Update update_of(const KernelRequest& request) {
  const graph::Attributes& attributes = request.op.attributes;
  return {request.inputs.at(0).elements(),
          attributes.has("momentum") ? attributes.number("momentum") : 0.0,
          attributes.number("weight_decay"), attributes.flag("nesterov"),
          UpdateInputs::of(request)};
}

double plain_sum_of_squares(const float* values, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += static_cast<double>(values[i]) * values[i];
  return sum;
}

std::unique_ptr<Kernel> reference_sgd(const KernelRequest& request) {
  return make_function_kernel([u = update_of(request)](const KernelArguments& a) {
    if (u.skips(a)) return;
    for (int64_t i = 0; i < u.count; ++i) {
      float& w = a.input<float>(0)[i];
      float& m = a.input<float>(1)[i];
      const double g = a.input<float>(2)[i] * u.scale(a) + u.weight_decay * w;
      const double momentum = u.momentum * m + g;
      m = static_cast<float>(momentum);
      const double direction = u.nesterov ? g + u.momentum * momentum : momentum;
      w = static_cast<float>(w - u.rate(a) * direction);
    }
  });
}

std::unique_ptr<Kernel> reference_sgd_plain(const KernelRequest& request) {
  return make_function_kernel([u = update_of(request)](const KernelArguments& a) {
    if (u.skips(a)) return;
    for (int64_t i = 0; i < u.count; ++i) {
      float& w = a.input<float>(0)[i];
      const double g = a.input<float>(1)[i] * u.scale(a) + u.weight_decay * w;
      w = static_cast<float>(w - u.rate(a) * g);
    }
  });
}

std::unique_ptr<Kernel> reference_adamw(const KernelRequest& request) {
  const double beta1 = request.op.attributes.number("beta1");
  const double beta2 = request.op.attributes.number("beta2");
  const double epsilon = request.op.attributes.number("epsilon");
  return make_function_kernel([=, u = update_of(request)](const KernelArguments& a) {
    if (u.skips(a)) return;
    float& updates = a.input<float>(4)[0];
    updates += 1;
    const double t = std::floor(updates);  // a count
    const double rate = u.rate(a);
    for (int64_t i = 0; i < u.count; ++i) {
      float& w = a.input<float>(0)[i];
      float& first = a.input<float>(1)[i];
      float& second = a.input<float>(2)[i];
      const double g = a.input<float>(3)[i] * u.scale(a);
      const double mean = beta1 * first + (1 - beta1) * g;
      const double square = beta2 * second + (1 - beta2) * g * g;
      first = static_cast<float>(mean);
      second = static_cast<float>(square);
      const double corrected_mean = mean / (1 - std::pow(beta1, t));
      const double corrected_square = square / (1 - std::pow(beta2, t));
      const double decayed = w - rate * u.weight_decay * w;
      w = static_cast<float>(decayed -
                             rate * corrected_mean / (std::sqrt(corrected_square) + epsilon));
    }
  });
}

std::unique_ptr<Kernel> reference_lars(const KernelRequest& request) {
  const graph::Attributes& attributes = request.op.attributes;
  const double trust = attributes.number("trust");
  const double epsilon = attributes.number("epsilon");
  const bool is_slice = attributes.has("squares_at");
  const int64_t place = is_slice ? attributes.integer("squares_at") : 0;
  return make_function_kernel([=, u = update_of(request)](const KernelArguments& a) {
    if (u.skips(a)) return;
    const double scale = u.scale(a);
    const auto of_whole = [&](size_t input, int64_t which) {
      return is_slice ? double{a.input<float>(3)[place + which]}
                      : plain_sum_of_squares(a.input<float>(input), u.count);
    };
    const double weight_norm = std::sqrt(of_whole(0, 0));
    const double gradient_norm = std::sqrt(of_whole(2, 1)) * scale;
    const bool still = weight_norm == 0 || gradient_norm == 0;
    const double local =
        still ? 1 : trust * weight_norm / (gradient_norm + u.weight_decay * weight_norm + epsilon);
    for (int64_t i = 0; i < u.count; ++i) {
      float& w = a.input<float>(0)[i];
      float& m = a.input<float>(1)[i];
      const double g = a.input<float>(2)[i] * scale + u.weight_decay * w;
      const double momentum = u.momentum * m + local * u.rate(a) * g;
      m = static_cast<float>(momentum);
      w = static_cast<float>(w - momentum);
    }
  });
}

// You et al., "Large Batch Optimization for Deep Learning", algorithm 2, with phi the identity.
std::unique_ptr<Kernel> reference_lamb(const KernelRequest& request) {
  const double beta1 = request.op.attributes.number("beta1");
  const double beta2 = request.op.attributes.number("beta2");
  const double epsilon = request.op.attributes.number("epsilon");
  return make_function_kernel([=, u = update_of(request)](const KernelArguments& a) {
    if (u.skips(a)) return;
    float& updates = a.input<float>(4)[0];
    updates += 1;
    const double t = std::floor(updates);
    double weight_squares = 0;
    double step_squares = 0;
    const auto step_of = [&](int64_t i) {
      const double mean = a.input<float>(1)[i] / (1 - std::pow(beta1, t));
      const double square = a.input<float>(2)[i] / (1 - std::pow(beta2, t));
      return mean / (std::sqrt(square) + epsilon) + u.weight_decay * a.input<float>(0)[i];
    };
    for (int64_t i = 0; i < u.count; ++i) {
      const double g = a.input<float>(3)[i] * u.scale(a);
      float& first = a.input<float>(1)[i];
      float& second = a.input<float>(2)[i];
      first = static_cast<float>(beta1 * first + (1 - beta1) * g);
      second = static_cast<float>(beta2 * second + (1 - beta2) * g * g);
      weight_squares += double{a.input<float>(0)[i]} * a.input<float>(0)[i];
      step_squares += step_of(i) * step_of(i);
    }
    const bool still = weight_squares == 0 || step_squares == 0;
    const double ratio = still ? 1 : std::sqrt(weight_squares / step_squares);
    for (int64_t i = 0; i < u.count; ++i) {
      float& w = a.input<float>(0)[i];
      w = static_cast<float>(w - u.rate(a) * ratio * step_of(i));
    }
  });
}

std::unique_ptr<Kernel> reference_rmsprop(const KernelRequest& request) {
  const double beta2 = request.op.attributes.number("beta2");
  const double epsilon = request.op.attributes.number("epsilon");
  const size_t gradient = request.op.type == "rmsprop_update" ? 3 : 2;
  return make_function_kernel([=, u = update_of(request)](const KernelArguments& a) {
    if (u.skips(a)) return;
    for (int64_t i = 0; i < u.count; ++i) {
      float& w = a.input<float>(0)[i];
      float& second = a.input<float>(1)[i];
      const double g = a.input<float>(gradient)[i] * u.scale(a) + u.weight_decay * w;
      const double square = beta2 * second + (1 - beta2) * g * g;
      second = static_cast<float>(square);
      double step = g / (std::sqrt(square) + epsilon);
      if (gradient == 3) {
        float& velocity = a.input<float>(2)[i];
        step += u.momentum * velocity;
        velocity = static_cast<float>(step);
      }
      w = static_cast<float>(w - u.rate(a) * step);
    }
  });
}

}  // namespace

std::unique_ptr<Kernel> reference_update(const KernelRequest& request, std::string* refusal) {
  if (!is_plain(request, refusal)) return nullptr;
  const std::string& type = request.op.type;
  if (type == "sgd_update") return reference_sgd(request);
  if (type == "sgd_plain_update") return reference_sgd_plain(request);
  if (type == "adamw_update") return reference_adamw(request);
  if (type.starts_with("rmsprop")) return reference_rmsprop(request);
  if (type == "lars_update") return reference_lars(request);
  if (type == "lamb_update" && !request.op.attributes.has("squares_at")) {
    return reference_lamb(request);
  }
  *refusal = "there is no reference for it";
  return nullptr;
}

std::unique_ptr<Kernel> reference_sum_of_squares(const KernelRequest& request,
                                                 std::string* refusal) {
  if (!is_plain(request, refusal)) return nullptr;
  return make_function_kernel([inputs = request.inputs](const KernelArguments& a) {
    double sum = 0;
    for (size_t i = 0; i < inputs.size(); ++i) {
      sum += plain_sum_of_squares(a.input<float>(i), inputs[i].elements());
    }
    a.output<float>(0)[0] = static_cast<float>(sum);
  });
}

std::unique_ptr<Kernel> reference_squares_of_each(const KernelRequest& request,
                                                  std::string* refusal) {
  if (!is_plain(request, refusal)) return nullptr;
  return make_function_kernel([inputs = request.inputs](const KernelArguments& a) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      a.output<float>(0)[i] =
          static_cast<float>(plain_sum_of_squares(a.input<float>(i), inputs[i].elements()));
    }
  });
}

std::unique_ptr<Kernel> reference_clip_scale(const KernelRequest& request, std::string* refusal) {
  if (!is_plain(request, refusal)) return nullptr;
  return make_function_kernel(
      [bound = request.op.attributes.number("max_norm")](const KernelArguments& a) {
        const double norm = std::sqrt(double{a.input<float>(0)[0]}) / a.step->loss_scale;
        const double scale = bound / (norm + 1e-6);
        a.output<float>(0)[0] = static_cast<float>(scale < 1 ? scale : 1);
      });
}

}  // namespace millrace::kernels
