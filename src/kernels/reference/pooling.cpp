#include <algorithm>
#include <limits>

#include "kernels/reference/reference.h"
#include "kernels/reference/sums.h"
#include "kernels/support/function_kernel.h"
#include "kernels/support/request_checks.h"

namespace millrace::kernels {
namespace {

// The pixels of one window along one axis.
struct Window {
  int64_t begin, end;  // inside the image
  int64_t start;       // where the window starts, in the padding perhaps
  int64_t counted;     // pixels that an average divides by
};

enum class Kind { fixed, fixed_without_padding, adaptive, global };

struct PoolGeometry {
  int64_t planes, height, width, result_height, result_width;
  Kind kind;
  std::vector<int64_t> kernel, stride, padding;

  Window window(size_t axis, int64_t position) const {
    const int64_t size = axis == 0 ? height : width;
    const int64_t results = axis == 0 ? result_height : result_width;
    if (kind == Kind::global) return {0, size, 0, size};
    if (kind == Kind::adaptive) {
      const int64_t begin = position * size / results;
      const int64_t end = ((position + 1) * size + results - 1) / results;
      return {begin, end, begin, end - begin};
    }
    const int64_t start = position * stride[axis] - padding[axis];
    const int64_t begin = std::max<int64_t>(start, 0);
    const int64_t end = std::min(start + kernel[axis], size);
    const int64_t padded_end = std::min(start + kernel[axis], size + padding[axis]);
    const bool counts_padding = kind == Kind::fixed;
    return {begin, end, start, counts_padding ? padded_end - start : end - begin};
  }

  // Calls body(result position, plane, vertical window, horizontal window).
  template <typename Body>
  void each_result(Body&& body) const {
    for (int64_t plane = 0; plane < planes; ++plane)
      for (int64_t p = 0; p < result_height; ++p)
        for (int64_t q = 0; q < result_width; ++q)
          body((plane * result_height + p) * result_width + q, plane, window(0, p), window(1, q));
  }

  // Calls body(image position, position within the window).
  template <typename Body>
  void each_pixel(int64_t plane, const Window& v, const Window& h, Body&& body) const {
    for (int64_t i = v.begin; i < v.end; ++i)
      for (int64_t j = h.begin; j < h.end; ++j)
        body((plane * height + i) * width + j,
             (i - v.start) * (kernel.empty() ? 0 : kernel[1]) + (j - h.start));
  }
};

PoolGeometry pool_geometry(const graph::Attributes& attributes, const graph::Shape& image,
                           const graph::Shape& result, Kind kind) {
  PoolGeometry g = {image.at(0) * image.at(1),
                    image.at(2),
                    image.at(3),
                    result.at(2),
                    result.at(3),
                    kind,
                    {},
                    {},
                    {}};
  if (kind == Kind::fixed || kind == Kind::fixed_without_padding) {
    g.kernel = attributes.integers("kernel");
    g.stride = attributes.integers("stride");
    g.padding = attributes.integers("padding");
  }
  return g;
}

Kind average_kind(const KernelRequest& request) {
  return request.op.attributes.flag("count_include_pad") ? Kind::fixed
                                                         : Kind::fixed_without_padding;
}

std::unique_ptr<Kernel> average(const KernelRequest& request, std::string* refusal, Kind kind) {
  if (!is_plain(request, refusal)) return nullptr;
  const PoolGeometry g = pool_geometry(request.op.attributes, request.inputs[0].type.shape,
                                       request.outputs[0].type.shape, kind);
  return make_function_kernel([g](const KernelArguments& a) {
    g.each_result([&](int64_t result, int64_t plane, const Window& v, const Window& h) {
      double sum = 0;
      g.each_pixel(plane, v, h, [&](int64_t image, int64_t) { sum += a.input<float>(0)[image]; });
      a.output<float>(0)[result] =
          static_cast<float>(sum / static_cast<double>(v.counted * h.counted));
    });
  });
}

std::unique_ptr<Kernel> average_backward(const KernelRequest& request, std::string* refusal,
                                         Kind kind) {
  if (!is_plain(request, refusal)) return nullptr;
  const PoolGeometry g = pool_geometry(request.op.attributes, request.outputs[0].type.shape,
                                       request.inputs[0].type.shape, kind);
  const int64_t count = request.outputs[0].elements();
  return make_function_kernel(
      [g, count](const KernelArguments& a) {
        double* sums = zeroed_sums(a, count);
        g.each_result([&](int64_t result, int64_t plane, const Window& v, const Window& h) {
          const double share =
              a.input<float>(0)[result] / static_cast<double>(v.counted * h.counted);
          g.each_pixel(plane, v, h, [&](int64_t image, int64_t) { sums[image] += share; });
        });
        store_sums(sums, count, a.output<float>(0));
      },
      bytes_of_sums(count));
}

}  // namespace

std::unique_ptr<Kernel> reference_max_pool(const KernelRequest& request, std::string* refusal) {
  if (!is_plain(request, refusal)) return nullptr;
  const PoolGeometry g = pool_geometry(request.op.attributes, request.inputs[0].type.shape,
                                       request.outputs[0].type.shape, Kind::fixed);
  const bool relu = request.op.attributes.flag("relu");
  return make_function_kernel([g, relu](const KernelArguments& a) {
    g.each_result([&](int64_t result, int64_t plane, const Window& v, const Window& h) {
      bool first = true;
      float maximum = 0;
      int64_t chosen = 0;
      g.each_pixel(plane, v, h, [&](int64_t image, int64_t position) {
        const float value = a.input<float>(0)[image];
        if (!first && !(value > maximum)) return;
        first = false;
        maximum = value;
        chosen = position;
      });
      a.output<float>(0)[result] = relu && maximum < 0 ? 0 : maximum;
      a.output<uint8_t>(1)[result] = static_cast<uint8_t>(chosen);
    });
  });
}

std::unique_ptr<Kernel> reference_max_pool_backward(const KernelRequest& request,
                                                    std::string* refusal) {
  if (!is_plain(request, refusal)) return nullptr;
  const PoolGeometry g = pool_geometry(request.op.attributes, request.outputs[0].type.shape,
                                       request.inputs[0].type.shape, Kind::fixed);
  const int64_t count = request.outputs[0].elements();
  return make_function_kernel(
      [g, count](const KernelArguments& a) {
        double* sums = zeroed_sums(a, count);
        g.each_result([&](int64_t result, int64_t plane, const Window& v, const Window& h) {
          g.each_pixel(plane, v, h, [&](int64_t image, int64_t position) {
            if (position != a.input<uint8_t>(1)[result]) return;
            sums[image] += a.input<float>(0)[result];
          });
        });
        store_sums(sums, count, a.output<float>(0));
      },
      bytes_of_sums(count));
}

std::unique_ptr<Kernel> reference_average_pool(const KernelRequest& request, std::string* refusal) {
  return average(request, refusal, average_kind(request));
}

std::unique_ptr<Kernel> reference_average_pool_backward(const KernelRequest& request,
                                                        std::string* refusal) {
  return average_backward(request, refusal, average_kind(request));
}

std::unique_ptr<Kernel> reference_global_average_pool(const KernelRequest& request,
                                                      std::string* refusal) {
  return average(request, refusal, Kind::global);
}

std::unique_ptr<Kernel> reference_global_average_pool_backward(const KernelRequest& request,
                                                               std::string* refusal) {
  return average_backward(request, refusal, Kind::global);
}

std::unique_ptr<Kernel> reference_adaptive_average_pool(const KernelRequest& request,
                                                        std::string* refusal) {
  return average(request, refusal, Kind::adaptive);
}

std::unique_ptr<Kernel> reference_adaptive_average_pool_backward(const KernelRequest& request,
                                                                 std::string* refusal) {
  return average_backward(request, refusal, Kind::adaptive);
}

}  // namespace millrace::kernels
