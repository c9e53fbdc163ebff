// Channels of images times factors, plain or with channels in blocks. The factors lie as the image
// does, so that each plane of an image has its own behind each other.
#include <algorithm>

#include "base/parallel.h"
#include "kernels/support/function_kernel.h"
#include "kernels/support/layout_rules.h"
#include "kernels/support/request_checks.h"
#include "kernels/support/vectorize.h"

namespace millrace::kernels::scale_channels {
namespace {

struct Planes {
  int64_t count;    // samples x blocks of channels
  int64_t block;    // channels of each
  int64_t spatial;  // pixels of each

  explicit Planes(const TensorSpec& x)
      : block(x.layout.channel_block()), spatial(x.type.shape[2] * x.type.shape[3]) {
    count = x.physical_elements() / (block * spatial);
  }
  int64_t length() const { return block * spatial; }
  int64_t grain() const { return kElementwiseGrain / std::max<int64_t>(length(), 1); }
};

MILLRACE_VECTORIZED void scale_one(const float* x, float factor, float* y, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) y[i] = x[i] * factor;
}

MILLRACE_VECTORIZED void scale_block(const float* x, const float* factors, float* y, int64_t block,
                                     int64_t spatial) {
  for (int64_t s = 0; s < spatial; ++s, x += block, y += block) {
#pragma GCC ivdep
    for (int64_t c = 0; c < block; ++c) y[c] = x[c] * factors[c];
  }
}

void scale(const Planes& planes, const float* x, const float* factors, float* y) {
  if (planes.block == 1) {
    scale_one(x, *factors, y, planes.spatial);
  } else {
    scale_block(x, factors, y, planes.block, planes.spatial);
  }
}

MILLRACE_VECTORIZED void sum_products(const float* a, const float* b, int64_t count, float* sum) {
  FloatLanes sums = {};
  int64_t i = 0;
  for (; i + kFloatLanes <= count; i += kFloatLanes) {
    FloatLanes left, right;
    load_lanes(a + i, left);
    load_lanes(b + i, right);
    sums += left * right;
  }
  double total = sum_of_lanes(sums);
  for (; i < count; ++i) total += a[i] * b[i];
  *sum = static_cast<float>(total);
}

MILLRACE_VECTORIZED void sum_products_of_block(const float* a, const float* b, int64_t block,
                                               int64_t spatial, float* sums) {
  std::fill(sums, sums + block, 0.0f);
  for (int64_t s = 0; s < spatial; ++s, a += block, b += block) {
#pragma GCC ivdep
    for (int64_t c = 0; c < block; ++c) sums[c] += a[c] * b[c];
  }
}

std::unique_ptr<Kernel> make_forward(const KernelRequest& request, std::string* refusal) {
  if (!is_channelwise(request, refusal)) return nullptr;
  return make_function_kernel([planes = Planes(request.inputs[0])](const KernelArguments& a) {
    parallel_for(planes.count, planes.grain(), [&](int64_t plane) {
      const int64_t at = plane * planes.length();
      scale(planes, a.input<float>(0) + at, a.input<float>(1) + plane * planes.block,
            a.output<float>(0) + at);
    });
  });
}

// The sums come first, as dx may lie where dy does.
std::unique_ptr<Kernel> make_backward(const KernelRequest& request, std::string* refusal) {
  if (!is_channelwise(request, refusal)) return nullptr;
  return make_function_kernel([planes = Planes(request.inputs[0])](const KernelArguments& a) {
    parallel_for(planes.count, planes.grain(), [&](int64_t plane) {
      const int64_t at = plane * planes.length();
      const float* dy = a.input<float>(0) + at;
      const float* x = a.input<float>(1) + at;
      float* sums = a.output<float>(1) + plane * planes.block;
      if (planes.block == 1) {
        sum_products(dy, x, planes.spatial, sums);
      } else {
        sum_products_of_block(dy, x, planes.block, planes.spatial, sums);
      }
      scale(planes, dy, a.input<float>(2) + plane * planes.block, a.output<float>(0) + at);
    });
  });
}

std::unique_ptr<Kernel> reference_forward(const KernelRequest& request, std::string* refusal) {
  if (!is_plain(request, refusal)) return nullptr;
  const int64_t count = request.inputs[0].elements();
  const int64_t spatial = count / request.inputs[1].elements();
  return make_function_kernel([=](const KernelArguments& a) {
    for (int64_t i = 0; i < count; ++i) {
      a.output<float>(0)[i] = a.input<float>(0)[i] * a.input<float>(1)[i / spatial];
    }
  });
}

std::unique_ptr<Kernel> reference_backward(const KernelRequest& request, std::string* refusal) {
  if (!is_plain(request, refusal)) return nullptr;
  const int64_t channels = request.inputs[2].elements();
  const int64_t spatial = request.inputs[0].elements() / channels;
  return make_function_kernel([=](const KernelArguments& a) {
    for (int64_t c = 0; c < channels; ++c) {
      double sum = 0;
      for (int64_t i = c * spatial; i < (c + 1) * spatial; ++i) {
        const double dy = a.input<float>(0)[i];
        sum += dy * a.input<float>(1)[i];
        a.output<float>(0)[i] = static_cast<float>(dy * a.input<float>(2)[c]);
      }
      a.output<float>(1)[c] = static_cast<float>(sum);
    }
  });
}

LayoutWish follow_image(const KernelRequest& request) { return follow_channels(request, 0); }

// What is kept in 16 bits leads, as reorders are for float32.
LayoutWish follow_kept_image(const KernelRequest& request) {
  return follow_channels(request, graph::size_of(request.inputs.at(1).type.dtype) == 2 ? 1 : 0);
}

}  // namespace

std::vector<KernelFamily> kernels() {
  return {{"scale_channels",
           {{"planes", make_forward}, {"reference", reference_forward}},
           follow_image},
          {"scale_channels_backward",
           {{"planes", make_backward}, {"reference", reference_backward}},
           follow_kept_image}};
}

}  // namespace millrace::kernels::scale_channels
