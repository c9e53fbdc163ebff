#include <algorithm>
#include <bit>
#include <cmath>

#include "base/parallel.h"
#include "base/philox.h"
#include "base/random.h"
#include "kernels/support/elements.h"
#include "kernels/support/function_kernel.h"
#include "kernels/support/layout_rules.h"
#include "kernels/support/request_checks.h"

namespace millrace::kernels::dropout {
namespace {

// One step's mask: element `index` is kept where its uniform number is at least the rate.
struct Mask {
  uint64_t seed;
  uint64_t stream;
  uint32_t threshold;  // in units of 2^-24, as Random::uniform has them
  float scale;
};

constexpr int64_t kCounters = 16;
constexpr int64_t kChunk = 4 * kCounters;

// All bits set for elements first .. first + kChunk that are kept; `first` is a multiple of 4.
MILLRACE_VECTORIZED void kept_bits(const Mask& mask, int64_t first, uint32_t* bits) {
  const auto key0 = static_cast<uint32_t>(mask.seed);
  const auto key1 = static_cast<uint32_t>(mask.seed >> 32);
  const auto stream0 = static_cast<uint32_t>(mask.stream);
  const auto stream1 = static_cast<uint32_t>(mask.stream >> 32);
  const auto counter = static_cast<uint64_t>(first) / 4;
  const uint32_t threshold = mask.threshold;
  uint32_t words[4][kCounters];
#pragma GCC ivdep
  for (int64_t i = 0; i < kCounters; ++i) {
    const uint64_t at = counter + static_cast<uint64_t>(i);
    const auto state = philox(
        {static_cast<uint32_t>(at), static_cast<uint32_t>(at >> 32), stream0, stream1}, key0, key1);
    words[0][i] = state[0];
    words[1][i] = state[1];
    words[2][i] = state[2];
    words[3][i] = state[3];
  }
  for (int64_t i = 0; i < kCounters; ++i) {
    for (int64_t j = 0; j < 4; ++j) {
      bits[4 * i + j] = (words[j][i] >> 8) >= threshold ? ~0u : 0u;
    }
  }
}

MILLRACE_INLINE float keep(float x, float scale, uint32_t bits) {
  return std::bit_cast<float>(std::bit_cast<uint32_t>(x * scale) & bits);
}

MILLRACE_VECTORIZED void keep_row(const float* x, const uint32_t* bits, float scale, float* y,
                                  int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) y[i] = keep(x[i], scale, bits[i]);
}

MILLRACE_VECTORIZED void keep_all(const float* x, uint32_t bits, float scale, float* y,
                                  int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) y[i] = keep(x[i], scale, bits);
}

// Elements first .. first + count, which lie `stride` apart in x and y.
void apply(const Mask& mask, int64_t first, int64_t count, int64_t stride, const float* x,
           float* y) {
  uint32_t bits[kChunk];
  for (int64_t done = 0; done < count;) {
    const int64_t aligned = (first + done) / 4 * 4;
    const int64_t skip = first + done - aligned;
    const int64_t part = std::min(kChunk - skip, count - done);
    kept_bits(mask, aligned, bits);
    const float* from = x + done * stride;
    float* to = y + done * stride;
    if (stride == 1) {
      keep_row(from, bits + skip, mask.scale, to, part);
    } else {
      for (int64_t i = 0; i < part; ++i) {
        to[i * stride] = keep(from[i * stride], mask.scale, bits[skip + i]);
      }
    }
    done += part;
  }
}

Mask mask_of(const KernelRequest& request) {
  const double rate = request.op.attributes.number("rate");
  return {0, static_cast<uint64_t>(request.op.attributes.integer("stream")),
          static_cast<uint32_t>(std::ceil(rate * 0x1.0p24)),
          rate < 1 ? static_cast<float>(1 / (1 - rate)) : 0.0f};
}

Mask at_step(Mask mask, const StepState& step) {
  mask.seed = hash_combine(step.seed, static_cast<uint64_t>(step.step));
  return mask;
}

// Where a device's tensor lies in the job's, so that each element's number is that of its place
// there whatever the division: attributes sample_begin, channel_begin and channels.
struct Place {
  int64_t row;    // elements of a sample here
  int64_t whole;  // elements of a sample in the job
  int64_t begin;  // of the first channel
  int64_t sample_begin;

  explicit Place(const KernelRequest& request) {
    const graph::Attributes& attributes = request.op.attributes;
    const graph::Shape& shape = request.inputs[0].type.shape;
    row = graph::elements_of(shape) / shape.at(0);
    sample_begin = attributes.has("sample_begin") ? attributes.integer("sample_begin") : 0;
    whole = row;
    begin = 0;
    if (!attributes.has("channels")) return;
    const int64_t spatial = row / shape.at(1);
    whole = attributes.integer("channels") * spatial;
    begin = attributes.integer("channel_begin") * spatial;
  }

  // The number of a sample in the job.
  int64_t sample(const StepState& step, int64_t here) const {
    return step.first_sample + sample_begin + here;
  }

  // The number of the first element of a sample.
  int64_t first(const StepState& step, int64_t here) const {
    return sample(step, here) * whole + begin;
  }
};

std::unique_ptr<Kernel> make_flat(const KernelRequest& request) {
  const Place place(request);
  const bool is_run = place.row == place.whole;
  const int64_t samples = is_run ? 1 : request.inputs[0].type.shape[0];
  const int64_t count = request.inputs[0].elements() / samples;
  const graph::DataType type = request.inputs[0].type.dtype;
  return make_function_kernel([=, fixed = mask_of(request)](const KernelArguments& a) {
    const Mask mask = at_step(fixed, *a.step);
    for (int64_t n = 0; n < samples; ++n) {
      const int64_t bytes = n * count * graph::size_of(type);
      const int64_t first = place.first(*a.step, n);
      parallel_ranges(count, kElementwiseGrain / 4, [&](int, int64_t begin, int64_t end) {
        in_floats<1>({StoredNumbers{type, a.inputs[0] + bytes}}, {type, a.outputs[0] + bytes},
                     begin, end, [&](const auto& x, float* y, int64_t at, int64_t part) {
                       apply(mask, first + at, part, 1, x[0], y);
                     });
      });
    }
  });
}

// The numbers of a sample lie together in every layout that is served, its padding among them.
std::unique_ptr<Kernel> make_by_sample(const KernelRequest& request) {
  const Place place(request);
  const int64_t samples = request.inputs[0].type.shape.at(0);
  const int64_t count = request.inputs[0].physical_elements() / samples;
  const double rate = request.op.attributes.number("rate");
  const graph::DataType type = request.inputs[0].type.dtype;
  return make_function_kernel([=, fixed = mask_of(request)](const KernelArguments& a) {
    const Mask mask = at_step(fixed, *a.step);
    const Random random(mask.seed, mask.stream);
    for (int64_t n = 0; n < samples; ++n) {
      const auto index = static_cast<uint64_t>(place.sample(*a.step, n));
      const uint32_t bits = random.uniform(index) >= rate ? ~0u : 0u;
      const int64_t bytes = n * count * graph::size_of(type);
      parallel_ranges(count, kElementwiseGrain, [&](int, int64_t begin, int64_t end) {
        in_floats<1>({StoredNumbers{type, a.inputs[0] + bytes}}, {type, a.outputs[0] + bytes},
                     begin, end, [&](const auto& x, float* y, int64_t, int64_t part) {
                       keep_all(x[0], bits, mask.scale, y, part);
                     });
      });
    }
  });
}

std::unique_ptr<Kernel> make_dropout(const KernelRequest& request, std::string* refusal) {
  if (!is_channelwise(request, refusal)) return nullptr;
  if (request.op.attributes.flag("by_sample")) return make_by_sample(request);
  const int64_t block = request.inputs[0].layout.channel_block();
  if (block == 1) return make_flat(request);
  if (request.inputs[0].type.dtype != graph::DataType::f32) {
    *refusal = "images with channels in blocks are taken as f32 only";
    return nullptr;
  }
  const graph::Shape& shape = request.inputs[0].type.shape;
  const int64_t channels = shape.at(1);
  const int64_t padded = (channels + block - 1) / block * block;
  const int64_t spatial = graph::elements_of(shape) / (shape[0] * channels);
  const int64_t planes = shape[0] * padded;
  return make_function_kernel(
      [=, place = Place(request), fixed = mask_of(request)](const KernelArguments& a) {
        const Mask mask = at_step(fixed, *a.step);
        const StepState step = *a.step;
        const auto* x = a.input<float>(0);
        auto* y = a.output<float>(0);
        const int64_t grain = kElementwiseGrain / 4 / std::max<int64_t>(spatial, 1);
        parallel_for(planes, grain, [=](int64_t plane) {
          const int64_t n = plane / padded;
          const int64_t c = plane % padded;
          const int64_t at = (plane / block * spatial) * block + c % block;
          if (c < channels) {
            apply(mask, place.first(step, n) + c * spatial, spatial, block, x + at, y + at);
          } else {
            for (int64_t i = 0; i < spatial; ++i) y[at + i * block] = 0;
          }
        });
      });
}

std::unique_ptr<Kernel> reference_dropout(const KernelRequest& request, std::string* refusal) {
  if (!is_plain(request, refusal)) return nullptr;
  const double rate = request.op.attributes.number("rate");
  const auto stream = static_cast<uint64_t>(request.op.attributes.integer("stream"));
  const int64_t count = request.inputs[0].elements();
  const bool by_sample = request.op.attributes.flag("by_sample");
  const Place place(request);
  return make_function_kernel([=](const KernelArguments& a) {
    const Random random(hash_combine(a.step->seed, static_cast<uint64_t>(a.step->step)), stream);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t sample = i / place.row;
      const int64_t index =
          by_sample ? place.sample(*a.step, sample) : place.first(*a.step, sample) + i % place.row;
      const bool kept = random.uniform(static_cast<uint64_t>(index)) >= rate;
      a.output<float>(0)[i] =
          kept ? static_cast<float>(a.input<float>(0)[i] * (1 / (1 - rate))) : 0;
    }
  });
}

LayoutWish follow(const KernelRequest& request) { return follow_channels(request, 0); }

}  // namespace

std::vector<KernelFamily> kernels() {
  return {
      {"dropout", {{"vector", make_dropout, true}, {"reference", reference_dropout}}, follow},
      {"dropout_backward",
       {{"vector", make_dropout, true}, {"reference", reference_dropout}},
       follow},
  };
}

}  // namespace millrace::kernels::dropout
