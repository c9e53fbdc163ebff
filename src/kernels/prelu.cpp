#include <algorithm>

#include "base/parallel.h"
#include "kernels/support/elements.h"
#include "kernels/support/function_kernel.h"
#include "kernels/support/layout_rules.h"
#include "kernels/support/request_checks.h"

namespace millrace::kernels::prelu {
namespace {

constexpr int64_t kLargestBlock = 64;

// x as `planes` runs of `spatial` pixels with `block` channels each. Plain images have one
// channel to a plane; rows of a matrix are one pixel with all channels.
struct Geometry {
  int64_t channels, block, blocks, spatial, planes;

  int64_t first_channel(int64_t plane) const { return plane % blocks * block; }
  int64_t length() const { return spatial * block; }
  int64_t grain() const { return kElementwiseGrain / std::max<int64_t>(length(), 1); }
};

Geometry geometry_of(const TensorSpec& x) {
  const graph::Shape& shape = x.type.shape;
  const int64_t channels = shape.at(1);
  const int64_t spatial = graph::elements_of(shape) / (shape[0] * channels);
  const bool row = shape.size() == 2;
  const int64_t block = row ? channels : x.layout.channel_block();
  const int64_t blocks = (channels + block - 1) / block;
  return {channels, block, blocks, spatial, shape[0] * blocks};
}

// The slopes of a plane's channels; past the last channel they are 0.
const float* slopes_of(const Geometry& g, int64_t plane, const float* weight, float* scratch) {
  const int64_t first = g.first_channel(plane);
  if (first + g.block <= g.channels) return weight + first;
  std::fill(scratch, scratch + g.block, 0.0f);
  std::copy(weight + first, weight + g.channels, scratch);
  return scratch;
}

// Both directions: y = value where x > 0, slope * value elsewhere.
MILLRACE_VECTORIZED void apply_lanes(const float* x, const float* value, const float* slopes,
                                     int64_t block, int64_t count, float* y) {
  FloatLanes factors;
  for (int64_t lane = 0; lane < kFloatLanes; ++lane) factors[lane] = slopes[lane % block];
  int64_t i = 0;
  for (; i + kFloatLanes <= count; i += kFloatLanes) {
    FloatLanes signs;
    FloatLanes values;
    load_lanes(x + i, signs);
    load_lanes(value + i, values);
    values = signs > 0.0f ? values : values * factors;
    std::memcpy(y + i, &values, sizeof(values));
  }
  for (; i < count; ++i) y[i] = x[i] > 0 ? value[i] : value[i] * slopes[i % block];
}

MILLRACE_VECTORIZED void apply_block(const float* x, const float* value, const float* slopes,
                                     int64_t block, int64_t spatial, float* y) {
  for (int64_t s = 0; s < spatial; ++s, x += block, value += block, y += block) {
#pragma GCC ivdep
    for (int64_t c = 0; c < block; ++c) y[c] = x[c] > 0 ? value[c] : value[c] * slopes[c];
  }
}

void apply(const Geometry& g, const float* slopes, const float* x, const float* value,
           int64_t count, float* y) {
  if (kFloatLanes % g.block == 0) {
    apply_lanes(x, value, slopes, g.block, count, y);
  } else {
    apply_block(x, value, slopes, g.block, count / g.block, y);
  }
}

MILLRACE_INLINE void negative_products(const float* x, const float* dy, FloatLanes& sums) {
  FloatLanes values;
  FloatLanes gradients;
  load_lanes(x, values);
  load_lanes(dy, gradients);
  sums += values > 0.0f ? FloatLanes{} : values * gradients;
}

// Sums of x * dy where x is not positive. `count` consecutive elements belong to one channel.
MILLRACE_VECTORIZED void sum_one(const float* x, const float* dy, int64_t count, float* sum) {
  FloatLanes sums = {};
  int64_t i = 0;
  for (; i + kFloatLanes <= count; i += kFloatLanes) negative_products(x + i, dy + i, sums);
  double total = sum_of_lanes(sums);
  for (; i < count; ++i) total += x[i] > 0 ? 0.0f : x[i] * dy[i];
  *sum = static_cast<float>(total);
}

// As sum_one for each channel of a block; blocks that fill the lanes a whole number of times
// keep their sums in registers.
MILLRACE_VECTORIZED void sum_block(const float* x, const float* dy, int64_t block, int64_t spatial,
                                   float* out) {
  std::fill(out, out + block, 0.0f);
  const int64_t length = spatial * block;
  int64_t i = 0;
  if (kFloatLanes % block == 0) {
    FloatLanes sums = {};
    for (; i + kFloatLanes <= length; i += kFloatLanes) negative_products(x + i, dy + i, sums);
    for (int64_t lane = 0; lane < kFloatLanes; ++lane) out[lane % block] += sums[lane];
  }
  for (; i < length; i += block) {
    for (int64_t c = 0; c < block; ++c) out[c] += x[i + c] > 0 ? 0.0f : x[i + c] * dy[i + c];
  }
}

// Tensors of 16 bits come in parts, which must be whole pixels.
bool is_served(const KernelRequest& request, std::string* refusal) {
  if (!is_channelwise(request, refusal) || !has_one_type(request, 0, refusal)) return false;
  const int64_t block = geometry_of(request.inputs[0]).block;
  if (request.inputs[0].type.dtype == graph::DataType::f32 ||
      (block <= kLargestBlock && kFloatPart % block == 0)) {
    return true;
  }
  *refusal = "parts of 16 bits would cut pixels";
  return false;
}

std::unique_ptr<Kernel> make_forward(const KernelRequest& request, std::string* refusal) {
  if (!is_served(request, refusal)) return nullptr;
  const graph::DataType type = request.inputs[0].type.dtype;
  return make_function_kernel([type, g = geometry_of(request.inputs[0])](const KernelArguments& a) {
    parallel_for(g.planes, g.grain(), [&](int64_t plane) {
      float scratch[kLargestBlock];
      const float* slopes = slopes_of(g, plane, a.input<float>(1), scratch);
      const int64_t at = plane * g.length();
      in_floats<1>({StoredNumbers{type, a.inputs[0]}}, {type, a.outputs[0]}, at, at + g.length(),
                   [&](const auto& x, float* y, int64_t, int64_t count) {
                     apply(g, slopes, x[0], x[0], count, y);
                   });
    });
  });
}

void sum_plane(const Geometry& g, const float* x, const float* dy, int64_t count, float* sums) {
  if (g.block == 1) {
    sum_one(x, dy, count, sums);
  } else {
    sum_block(x, dy, g.block, count / g.block, sums);
  }
}

// The weight's gradient goes through one sum per sample and channel, added up in order.
std::unique_ptr<Kernel> make_backward(const KernelRequest& request, std::string* refusal) {
  if (!is_served(request, refusal)) return nullptr;
  const graph::DataType type = request.inputs[0].type.dtype;
  const Geometry g = geometry_of(request.inputs[0]);
  const int64_t padded = g.blocks * g.block;
  const int64_t batch = g.planes / g.blocks;
  const auto run = [=](const KernelArguments& a) {
    auto* dweight = a.output<float>(1);
    auto* sums = reinterpret_cast<float*>(a.workspace);
    parallel_for(g.planes, g.grain(), [&](int64_t plane) {
      float scratch[kLargestBlock];
      const float* slopes = slopes_of(g, plane, a.input<float>(2), scratch);
      float* own = sums + plane * g.block;
      const int64_t at = plane * g.length();
      in_floats<2>({StoredNumbers{type, a.inputs[0]}, StoredNumbers{type, a.inputs[1]}},
                   {type, a.outputs[0]}, at, at + g.length(),
                   [&](const auto& from, float* dx, int64_t position, int64_t count) {
                     if (position == at) {
                       sum_plane(g, from[1], from[0], count, own);
                     } else {
                       float more[kLargestBlock];
                       sum_plane(g, from[1], from[0], count, more);
                       for (int64_t c = 0; c < g.block; ++c) own[c] += more[c];
                     }
                     apply(g, slopes, from[1], from[0], count, dx);
                   });
    });
    parallel_for(g.channels, kElementwiseGrain / std::max<int64_t>(batch, 1), [&](int64_t c) {
      double sum = 0;
      for (int64_t n = 0; n < batch; ++n) sum += sums[n * padded + c];
      dweight[c] = static_cast<float>(sum);
    });
  };
  return make_function_kernel(run, static_cast<uint64_t>(batch * padded) * sizeof(float));
}

std::unique_ptr<Kernel> reference_forward(const KernelRequest& request, std::string* refusal) {
  if (!is_plain(request, refusal)) return nullptr;
  const int64_t count = request.inputs[0].elements();
  const int64_t channels = request.inputs[0].type.shape.at(1);
  const int64_t spatial = count / (request.inputs[0].type.shape.at(0) * channels);
  return make_function_kernel([=](const KernelArguments& a) {
    for (int64_t i = 0; i < count; ++i) {
      const float x = a.input<float>(0)[i];
      const float slope = a.input<float>(1)[i / spatial % channels];
      a.output<float>(0)[i] = x > 0 ? x : slope * x;
    }
  });
}

std::unique_ptr<Kernel> reference_backward(const KernelRequest& request, std::string* refusal) {
  if (!is_plain(request, refusal)) return nullptr;
  const graph::Shape shape = request.inputs[0].type.shape;
  const int64_t channels = shape.at(1);
  const int64_t spatial = graph::elements_of(shape) / (shape[0] * channels);
  return make_function_kernel([=](const KernelArguments& a) {
    for (int64_t c = 0; c < channels; ++c) {
      double sum = 0;
      for (int64_t n = 0; n < shape[0]; ++n) {
        for (int64_t s = 0; s < spatial; ++s) {
          const int64_t i = (n * channels + c) * spatial + s;
          const float x = a.input<float>(1)[i];
          const float dy = a.input<float>(0)[i];
          if (!(x > 0)) sum += static_cast<double>(x) * dy;
          a.output<float>(0)[i] = x > 0 ? dy : a.input<float>(2)[c] * dy;
        }
      }
      a.output<float>(1)[c] = static_cast<float>(sum);
    }
  });
}

LayoutWish follow(const KernelRequest& request) { return follow_channels(request, 0); }

}  // namespace

std::vector<KernelFamily> kernels() {
  return {
      {"prelu", {{"vector", make_forward, true}, {"reference", reference_forward}}, follow},
      {"prelu_backward",
       {{"vector", make_backward, true}, {"reference", reference_backward}},
       follow},
  };
}

}  // namespace millrace::kernels::prelu
