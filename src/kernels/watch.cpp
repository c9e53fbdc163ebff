#include "kernels/watch.h"

#include <atomic>
#include <cstring>

#include "base/parallel.h"
#include "kernels/support/function_kernel.h"

namespace millrace::kernels {
namespace {

constexpr int64_t kWatchGrain = 1 << 16;

// The bits that are all set in values that are not finite; 0 for types that have none.
uint32_t exponent_bits(graph::DataType type) {
  switch (type) {
    case graph::DataType::f32:
      return 0x7f800000;
    case graph::DataType::f16:
      return 0x7c00;
    case graph::DataType::bf16:
      return 0x7f80;
    case graph::DataType::s32:
    case graph::DataType::u8:
      break;
  }
  return 0;
}

template <typename Word>
int64_t count_with_bits(const std::byte* data, int64_t count, uint32_t bits) {
  std::atomic<int64_t> found = 0;
  parallel_ranges(count, kWatchGrain, [&](int, int64_t begin, int64_t end) {
    const auto* values = reinterpret_cast<const Word*>(data);
    int64_t here = 0;
    for (int64_t i = begin; i < end; ++i) here += (values[i] & bits) == bits ? 1 : 0;
    found += here;
  });
  return found;
}

bool is_constant(const WrittenTensor& tensor, const std::byte* data) {
  if (exponent_bits(tensor.dtype) == 0 || tensor.elements < 2) return false;
  const int64_t bytes = tensor.elements * graph::size_of(tensor.dtype);
  const int64_t width = graph::size_of(tensor.dtype);
  return std::memcmp(data, data + width, static_cast<size_t>(bytes - width)) == 0;
}

}  // namespace

int64_t count_not_finite(graph::DataType type, const std::byte* values, int64_t count) {
  const uint32_t bits = exponent_bits(type);
  if (bits == 0) return 0;
  if (type == graph::DataType::f32) return count_with_bits<uint32_t>(values, count, bits);
  return count_with_bits<uint16_t>(values, count, bits);
}

std::unique_ptr<Kernel> make_watch(std::string place, std::vector<WrittenTensor> written,
                                   bool alive) {
  return make_function_kernel([place = std::move(place), written = std::move(written),
                               alive](const KernelArguments& arguments) {
    for (const WrittenTensor& tensor : written) {
      const std::byte* data =
          (tensor.is_output ? arguments.outputs : arguments.inputs)[tensor.index];
      const int64_t bad = count_not_finite(tensor.dtype, data, tensor.elements);
      if (bad > 0) {
        throw Suspicious(fmt::format("{} gives {} of {} values of '{}' that are not finite", place,
                                     bad, tensor.elements, tensor.name));
      }
      if (alive && is_constant(tensor, data)) {
        throw Suspicious(
            fmt::format("{} gives '{}' the same value everywhere", place, tensor.name));
      }
    }
  });
}

}  // namespace millrace::kernels
